// Qwen3.5 in double, a row after another and without pages, in which a test may let the kernels
// compute what reads earlier rows.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/golden_values.h"

namespace split::test {

using Rows = std::vector<std::vector<double>>;

struct Qwen35ByDouble {
  struct Linear {
    size_t key_heads, value_heads, key_dim, value_dim, taps;
    std::vector<double> conv;  // [width, taps]
    std::vector<double> decay, dt_bias;
    size_t width() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  };
  // Makes rows of all values from rows before the convolution, a and b.
  using Mix = std::function<Rows(size_t block, const Linear& linear, const Rows& qkv, const Rows& a,
                                 const Rows& b)>;

  using WeightOf = std::function<std::vector<double>(const std::string& name)>;

  // A golden model.
  explicit Qwen35ByDouble(const std::string& name)
      : Qwen35ByDouble(
            parse_json(read_file(source("tests/golden/" + name + "/config.json"), 1 << 20), 16,
                       "[config.json]"),
            golden_weights(name)) {}
  // Settings as config.json has them, with any weights.
  Qwen35ByDouble(const Json& whole, WeightOf of) : weight(std::move(of)) {
    const bool inside = whole.contains("text_config");
    const Json& json = inside ? whole["text_config"] : whole;
    prefix = inside ? "model.language_model." : "model.";
    const auto number = [&](const char* key) { return static_cast<size_t>(json[key].get<int>()); };
    layers = number("num_hidden_layers");
    heads = number("num_attention_heads");
    kv_heads = number("num_key_value_heads");
    head_dim = number("head_dim");
    shape = {number("linear_num_key_heads"),
             number("linear_num_value_heads"),
             number("linear_key_head_dim"),
             number("linear_value_head_dim"),
             number("linear_conv_kernel_dim"),
             {},
             {},
             {}};
    for (size_t i = 0; i < layers; ++i) {
      full.push_back(json["layer_types"][i] == Json("full_attention"));
    }
  }

  static WeightOf golden_weights(const std::string& name) {
    const auto file =
        std::make_shared<MappedFile>(source("tests/golden/" + name + "/model.safetensors"));
    const auto tensors = std::make_shared<Safetensors>(Safetensors::parse(file->bytes(), name));
    return [file, tensors](const std::string& of) -> std::vector<double> {
      const TensorView& view = tensors->tensors().at(of);
      std::vector<float> wide(static_cast<size_t>(*element_count(view.dims)));
      convert(view, DType::kF32, std::as_writable_bytes(std::span(wide)));
      return {wide.begin(), wide.end()};
    };
  }
  static Rows product(const Rows& x, const std::vector<double>& w) {
    Rows y;
    for (const auto& row : x) {
      std::vector<double>& out = y.emplace_back(w.size() / row.size());
      for (size_t m = 0; m < out.size(); ++m) {
        for (size_t k = 0; k < row.size(); ++k) out[m] += w[m * row.size() + k] * row[k];
      }
    }
    return y;
  }
  static void norm(double* x, size_t n, const std::vector<double>& w, double plus) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-6);
    for (size_t i = 0; i < n; ++i) x[i] *= scale * (w[i] + plus);
  }
  Rows normed(Rows x, const std::string& name) const {
    const auto w = weight(name);
    for (auto& row : x) norm(row.data(), row.size(), w, 1);
    return x;
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  Rows attention(const Rows& x, const std::string& at) const {
    const size_t d = head_dim, half = d / 8;  // a quarter of the channels turns
    Rows queries = product(x, weight(at + "q_proj.weight"));
    Rows keys = product(x, weight(at + "k_proj.weight"));
    const Rows values = product(x, weight(at + "v_proj.weight"));
    const auto q_norm = weight(at + "q_norm.weight"), k_norm = weight(at + "k_norm.weight");
    const auto prepare = [&](double* head, const std::vector<double>& w, size_t position) {
      norm(head, d, w, 1);
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(1e7, -static_cast<double>(i) / static_cast<double>(half));
        const double a = head[i], b = head[i + half];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    };
    Rows out;
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < heads; ++h) prepare(&queries[t][2 * h * d], q_norm, t);
      for (size_t h = 0; h < kv_heads; ++h) prepare(&keys[t][h * d], k_norm, t);
      out.emplace_back(heads * d);
      for (size_t h = 0; h < heads; ++h) {
        const double* const q = &queries[t][2 * h * d];
        const size_t kv = h / (heads / kv_heads) * d;
        double sum = 0;
        for (size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += q[i] * keys[s][kv + i];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += weight;
          for (size_t i = 0; i < d; ++i) out[t][h * d + i] += weight * values[s][kv + i];
        }
        for (size_t i = 0; i < d; ++i) out[t][h * d + i] *= sigmoid(q[d + i]) / sum;
      }
    }
    return product(out, weight(at + "o_proj.weight"));
  }

  Linear linear_of(const std::string& at) const {
    Linear linear = shape;
    linear.conv = weight(at + "conv1d.weight");
    linear.dt_bias = weight(at + "dt_bias");
    for (const double a : weight(at + "A_log")) linear.decay.push_back(-std::exp(a));
    return linear;
  }
  Rows linear(size_t block, const Rows& x, const std::string& at, const Mix& mix) const {
    Rows o = mix(block, linear_of(at), product(x, weight(at + "in_proj_qkv.weight")),
                 product(x, weight(at + "in_proj_a.weight")),
                 product(x, weight(at + "in_proj_b.weight")));
    const Rows z = product(x, weight(at + "in_proj_z.weight"));
    const auto w = weight(at + "norm.weight");
    for (size_t t = 0; t < o.size(); ++t) {
      for (size_t h = 0; h < shape.value_heads; ++h) {
        norm(&o[t][h * shape.value_dim], shape.value_dim, w, 0);
      }
      for (size_t i = 0; i < o[t].size(); ++i) o[t][i] *= z[t][i] * sigmoid(z[t][i]);
    }
    return product(o, weight(at + "out_proj.weight"));
  }

  // All points' rows: what enters block 0, ..., what leaves the last.
  std::vector<Rows> run(const std::vector<int32_t>& ids, const Mix& mix) const {
    const auto table = weight(prefix + "embed_tokens.weight");
    const size_t channels = weight(prefix + "norm.weight").size();
    std::vector<Rows> points(1);
    for (const int32_t id : ids) {
      const auto from = table.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(id) * channels);
      points[0].emplace_back(from, from + static_cast<ptrdiff_t>(channels));
    }
    for (size_t b = 0; b < layers; ++b) {
      const std::string at = cat(prefix, "layers.", b, ".");
      Rows x = points.back();
      const auto join = [&](const Rows& more) {
        for (size_t t = 0; t < x.size(); ++t) {
          for (size_t i = 0; i < channels; ++i) x[t][i] += more[t][i];
        }
      };
      const Rows in = normed(x, at + "input_layernorm.weight");
      join(full[b] ? attention(in, at + "self_attn.") : linear(b, in, at + "linear_attn.", mix));
      const Rows behind = normed(x, at + "post_attention_layernorm.weight");
      Rows gate = product(behind, weight(at + "mlp.gate_proj.weight"));
      const Rows up = product(behind, weight(at + "mlp.up_proj.weight"));
      for (size_t t = 0; t < gate.size(); ++t) {
        for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] *= sigmoid(gate[t][i]) * up[t][i];
      }
      join(product(gate, weight(at + "mlp.down_proj.weight")));
      points.push_back(std::move(x));
    }
    return points;
  }

  WeightOf weight;
  std::string prefix;
  size_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  Linear shape;
  std::vector<bool> full;
};

}  // namespace split::test
