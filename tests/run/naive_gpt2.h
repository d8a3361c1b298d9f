// GPT-2's forward pass in double, a loop for each sum, written from transformers' modeling_gpt2.py
// as a description and from nothing of nn/: what every setting of config.json means.
#pragma once

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace split::test {

struct NaiveGpt2 {
  nlohmann::json config;
  std::function<std::vector<double>(const std::string& name)> weight;  // row-major, as in the file

  struct Result {
    std::vector<std::vector<double>> points;  // 0..L: the residual stream [T, C]; L + 1: after ln_f
    std::vector<double> logits;               // [V] at the last position
  };

  Result run(const std::vector<int32_t>& ids) const {
    const size_t rows = ids.size(), c = config.at("n_embd"), layers = config.at("n_layer"),
                 vocab = config.at("vocab_size");
    Result result;
    std::vector<double> x(rows * c);
    const auto wte = weight("wte.weight"), wpe = weight("wpe.weight");
    for (size_t t = 0; t < rows; ++t) {
      for (size_t i = 0; i < c; ++i) x[t * c + i] = wte[size_t(ids[t]) * c + i] + wpe[t * c + i];
    }
    result.points.push_back(x);
    for (size_t layer = 0; layer < layers; ++layer) {
      block(cat("h.", layer, "."), layer, x, rows);
      result.points.push_back(x);
    }
    result.points.push_back(norm(x, "ln_f"));
    const auto head = config.value("tie_word_embeddings", true) ? wte : weight("lm_head.weight");
    const double* last = result.points.back().data() + (rows - 1) * c;
    for (size_t v = 0; v < vocab; ++v) {
      double sum = 0;
      for (size_t i = 0; i < c; ++i) sum += last[i] * head[v * c + i];
      result.logits.push_back(sum);
    }
    return result;
  }

 private:
  void block(const std::string& h, size_t layer, std::vector<double>& x, size_t rows) const {
    const size_t c = config.at("n_embd"), heads = config.at("n_head"), d = c / heads;
    const size_t inner = config.contains("n_inner") && !config["n_inner"].is_null()
                             ? config["n_inner"].get<size_t>()
                             : 4 * c;
    const auto qkv = linear(norm(x, h + "ln_1"), h + "attn.c_attn", c, 3 * c);
    double scale = config.value("scale_attn_weights", true) ? 1 / std::sqrt(double(d)) : 1;
    if (config.value("scale_attn_by_inverse_layer_idx", false)) scale /= double(layer + 1);
    std::vector<double> mixed(rows * c);
    for (size_t head = 0; head < heads; ++head) {
      const auto at = [&](size_t row, size_t part, size_t i) {  // part 0, 1, 2: q, k, v
        return qkv[row * 3 * c + part * c + head * d + i];
      };
      for (size_t t = 0; t < rows; ++t) {
        std::vector<double> p(t + 1);
        double largest = -INFINITY, total = 0;
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < d; ++i) p[s] += at(t, 0, i) * at(s, 1, i) * scale;
          largest = std::max(largest, p[s]);
        }
        for (double& value : p) total += value = std::exp(value - largest);
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < d; ++i) mixed[t * c + head * d + i] += p[s] / total * at(s, 2, i);
        }
      }
    }
    add(x, linear(mixed, h + "attn.c_proj", c, c));
    auto hidden = linear(norm(x, h + "ln_2"), h + "mlp.c_fc", c, inner);
    for (double& value : hidden) value = activated(value);
    add(x, linear(hidden, h + "mlp.c_proj", inner, c));
  }

  double activated(double x) const {
    const std::string name = config.value("activation_function", "gelu_new");
    if (name == "relu") return x > 0 ? x : 0;
    if (name == "silu" || name == "swish") return x / (1 + std::exp(-x));
    if (name == "gelu" || name == "gelu_python") return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  // Conv1D: weight [in, out].
  std::vector<double> linear(const std::vector<double>& x, const std::string& name, size_t in,
                             size_t out) const {
    const auto w = weight(name + ".weight"), b = weight(name + ".bias");
    std::vector<double> y(x.size() / in * out);
    for (size_t t = 0; t < x.size() / in; ++t) {
      for (size_t o = 0; o < out; ++o) {
        double sum = b[o];
        for (size_t i = 0; i < in; ++i) sum += x[t * in + i] * w[i * out + o];
        y[t * out + o] = sum;
      }
    }
    return y;
  }
  std::vector<double> norm(const std::vector<double>& x, const std::string& name) const {
    const auto w = weight(name + ".weight"), b = weight(name + ".bias");
    const size_t c = w.size();
    std::vector<double> y(x.size());
    for (size_t row = 0; row < x.size(); row += c) {
      double mean = 0, variance = 0;
      for (size_t i = 0; i < c; ++i) mean += x[row + i] / double(c);
      for (size_t i = 0; i < c; ++i) variance += std::pow(x[row + i] - mean, 2) / double(c);
      for (size_t i = 0; i < c; ++i) {
        y[row + i] = (x[row + i] - mean) /
                         std::sqrt(variance + config.value("layer_norm_epsilon", 1e-5)) * w[i] +
                     b[i];
      }
    }
    return y;
  }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
};

}  // namespace split::test
