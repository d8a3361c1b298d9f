// An encoder's forward pass in doubles, row by row, written after the papers and transformers'
// settings of config.json: no op, graph or setting of the programs has a part in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/blocks.h"

namespace split::test {

class NaiveEncoder {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;
  // A weight's numbers by its name in the model.
  using Get = std::function<std::vector<float>(const std::string& name)>;
  NaiveEncoder(const std::string& config, Get get)
      : json_(parse_json(config, 16, "config.json")), get_(std::move(get)) {
    type_ = json_["model_type"].text();
    channels_ = whole("hidden_size", 0), heads_ = whole("num_attention_heads", 0);
    dim_ = whole("head_dim", channels_ / heads_);
    keys_ = whole("num_key_value_heads", heads_);
    layers_ = whole("num_hidden_layers", 0);
  }
  // Rows that enter each block, those that leave the last, and these behind a final norm, if any.
  std::vector<Rows> states(std::span<const int32_t> ids, size_t second = 0) const {
    const bool modern = type_ == "modernbert";
    return modern || type_ == "gemma3_text" ? rotary(ids, modern) : absolute(ids, second);
  }

 private:
  const Json* find(const char* key) const {
    const Json* const at = json_.find(key);
    return at == nullptr || at->is_null() ? nullptr : at;
  }
  double number(const char* key, double otherwise) const {
    const Json* const at = find(key);
    return at == nullptr ? otherwise : at->get<double>();
  }
  size_t whole(const char* key, size_t otherwise) const {
    return static_cast<size_t>(number(key, static_cast<double>(otherwise)));
  }
  std::string word(const char* key, const char* otherwise) const {
    const Json* const at = find(key);
    return at == nullptr ? otherwise : at->text();
  }
  double number_in(const Json* object, const char* key, double otherwise) const {
    const Json* const at = object == nullptr ? nullptr : object->find(key);
    return at == nullptr ? otherwise : at->get<double>();
  }
  const std::vector<float>& weight(const std::string& name) const {
    const auto at = kept_.find(name);
    return at != kept_.end() ? at->second : kept_.emplace(name, get_(name)).first->second;
  }
  Row row_of(const std::string& table, size_t at) const {
    const auto& all = weight(table);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(at * channels_);
    return {first, first + static_cast<std::ptrdiff_t>(channels_)};
  }
  static void add(Row& to, const Row& more) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
  }
  // A matrix [outputs, inputs].
  Row product(const Row& x, const std::string& name, bool bias) const {
    const auto& w = weight(name + ".weight");
    Row y(w.size() / x.size());
    for (size_t out = 0; out < y.size(); ++out) {
      if (bias) y[out] = double{weight(name + ".bias")[out]};
      for (size_t in = 0; in < x.size(); ++in) y[out] += x[in] * double{w[out * x.size() + in]};
    }
    return y;
  }
  Row layer_norm(const Row& x, const std::string& name, double eps, bool bias) const {
    const auto n = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / n;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    Row y(x.size());
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = (x[i] - mean) / std::sqrt(variance + eps) * double{weight(name + ".weight")[i]};
      if (bias) y[i] += double{weight(name + ".bias")[i]};
    }
    return y;
  }
  // Multiplies by 1 + w, as Gemma does.
  void rms_norm(std::span<double> x, const std::string& name, double eps) const {
    double squares = 0;
    for (const double v : x) squares += v * v / static_cast<double>(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] *= (1 + double{weight(name + ".weight")[i]}) / std::sqrt(squares + eps);
    }
  }
  static double activated(const std::string& name, double x) {
    if (name == "relu") return std::max(x, 0.0);
    if (name == "silu" || name == "swish") return x / (1 + std::exp(-x));
    if (name == "gelu" || name == "gelu_python") return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  // Each row's heads over the values of the keys that `score` makes a number of.
  template <typename Seen, typename Score>
  Rows attended(const Rows& q, const Rows& k, const Rows& v, const Seen& seen,
                const Score& score) const {
    Rows out(q.size(), Row(heads_ * dim_));
    for (size_t r = 0; r < q.size(); ++r) {
      for (size_t h = 0; h < heads_; ++h) {
        const size_t shared = h / (heads_ / keys_) * dim_, own = h * dim_;
        double sum = 0;
        std::vector<double> weights(k.size());
        for (size_t key = 0; key < k.size(); ++key) {
          double dot = 0;
          for (size_t i = 0; i < dim_; ++i) dot += q[r][own + i] * k[key][shared + i];
          if (seen(r, key)) sum += weights[key] = std::exp(score(dot, r, key, h));
        }
        for (size_t key = 0; key < k.size(); ++key) {
          for (size_t i = 0; i < dim_; ++i) {
            out[r][own + i] += weights[key] / sum * v[key][shared + i];
          }
        }
      }
    }
    return out;
  }
  // BERT, RoBERTa, XLM-R and MPNet.
  std::vector<Rows> absolute(std::span<const int32_t> ids, size_t second) const {
    const bool mpnet = type_ == "mpnet", counted = type_ != "bert";
    const double eps = number("layer_norm_eps", 1e-12);
    // MPNet has its padding in its code, whatever config.json says.
    const auto pad = static_cast<int32_t>(mpnet ? 1 : whole("pad_token_id", 1));
    int32_t last = pad;
    Rows x;
    for (size_t t = 0; t < ids.size(); ++t) {
      const auto place = static_cast<size_t>(ids[t] == pad ? pad : ++last);
      Row row = row_of("embeddings.word_embeddings.weight", static_cast<size_t>(ids[t]));
      add(row, row_of("embeddings.position_embeddings.weight", counted ? place : t));
      const size_t type = second > 0 && t >= second ? 1 : 0;
      if (!mpnet) add(row, row_of("embeddings.token_type_embeddings.weight", type));
      x.push_back(layer_norm(row, "embeddings.LayerNorm", eps, true));
    }
    std::vector<Rows> all = {x};
    for (size_t layer = 0; layer < layers_; ++layer) {
      const std::string at = cat("encoder.layer.", layer);
      const std::string qkv = at + (mpnet ? ".attention.attn." : ".attention.self.");
      Rows q, k, v;
      for (const Row& row : x) {
        q.push_back(product(row, qkv + (mpnet ? "q" : "query"), true));
        k.push_back(product(row, qkv + (mpnet ? "k" : "key"), true));
        v.push_back(product(row, qkv + (mpnet ? "v" : "value"), true));
      }
      const Rows seen = attended(
          q, k, v, [](size_t, size_t) { return true; },
          [&](double dot, size_t r, size_t key, size_t h) {
            dot /= std::sqrt(static_cast<double>(dim_));
            if (!mpnet) return dot;
            const auto& table = weight("encoder.relative_attention_bias.weight");
            return dot + double{table[bucket_of(r, key) * heads_ + h]};
          });
      for (size_t t = 0; t < x.size(); ++t) {
        Row y =
            product(seen[t], at + (mpnet ? ".attention.attn.o" : ".attention.output.dense"), true);
        add(y, x[t]);
        y = layer_norm(y, at + (mpnet ? ".attention.LayerNorm" : ".attention.output.LayerNorm"),
                       eps, true);
        Row inner = product(y, at + ".intermediate.dense", true);
        for (double& value : inner) value = activated(word("hidden_act", "gelu"), value);
        inner = product(inner, at + ".output.dense", true);
        add(inner, y);
        x[t] = layer_norm(inner, at + ".output.LayerNorm", eps, true);
      }
      all.push_back(x);
    }
    return all;
  }
  // Returns one of 32, half of them behind a row: distances below 8 each, then logarithms to 128.
  static size_t bucket_of(size_t row, size_t key) {
    const size_t places = key > row ? key - row : row - key;
    size_t bucket = places;
    if (places >= 8) {
      const float by_log =
          std::log(static_cast<float>(places) / 8) / static_cast<float>(std::log(16.0)) * 8;
      bucket = std::min<size_t>(8 + static_cast<size_t>(by_log), 15);
    }
    return bucket + (key > row ? 16 : 0);
  }
  bool has_window(size_t layer, bool modern) const {
    if (const Json* const types = find("layer_types")) {
      return (*types)[layer].text() == "sliding_attention";
    }
    if (modern) return layer % whole("global_attn_every_n_layers", 3) != 0;
    const char* const key =
        find("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    return (layer + 1) % whole(key, 6) != 0;
  }
  // Turns each head's pairs of channels half a head apart, by the row's place.
  void turn(Row& x, size_t place, bool window, bool modern) const {
    const Json* const all = find("rope_parameters");
    const Json* const own =
        all == nullptr ? nullptr : all->find(window ? "sliding_attention" : "full_attention");
    const Json* const scaling = modern || !window ? find("rope_scaling") : nullptr;
    const char* const key = modern   ? (window ? "local_rope_theta" : "global_rope_theta")
                            : window ? "rope_local_base_freq"
                                     : "rope_theta";
    const double usual = window ? 10000 : modern ? 160000 : 1e6;
    const double theta = number_in(own, "rope_theta", number(key, usual));
    const double factor = number_in(own, "factor", number_in(scaling, "factor", 1));
    for (size_t head = 0; head < x.size(); head += dim_) {
      for (size_t i = 0; i < dim_ / 2; ++i) {
        const double exponent = 2 * static_cast<double>(i) / static_cast<double>(dim_);
        const double angle = static_cast<double>(place) / std::pow(theta, exponent) / factor;
        double &a = x[head + i], &b = x[head + i + dim_ / 2];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
    }
  }
  // ModernBERT, and a Gemma 3 whose rows see those behind them.
  std::vector<Rows> rotary(std::span<const int32_t> ids, bool modern) const {
    const double eps = modern ? number("norm_eps", 1e-5) : number("rms_norm_eps", 1e-6);
    const bool bias = !modern && find("attention_bias") && json_["attention_bias"].get<bool>();
    const std::string activation =
        modern ? word("hidden_activation", "gelu") : word("hidden_activation", "gelu_pytorch_tanh");
    const auto normed = [&](Row x, const std::string& name) {
      if (modern) return layer_norm(x, name, eps, false);
      rms_norm(x, name, eps);
      return x;
    };
    const double scale =
        1 / std::sqrt(modern ? static_cast<double>(dim_) : number("query_pre_attn_scalar", 256));
    const double cap = modern ? 0 : number("attn_logit_softcapping", 0);
    // Keys to either side of a row, in blocks with a window.
    const size_t reach =
        modern ? whole("local_attention", 128) / 2 : whole("sliding_window", 4096) / 2;
    Rows x;
    for (const int32_t id : ids) {
      Row row = row_of("embed_tokens.weight", static_cast<size_t>(id));
      if (!modern) {
        for (double& value : row) value *= std::sqrt(static_cast<double>(channels_));
      }
      x.push_back(modern ? normed(row, "embed_norm") : row);
    }
    std::vector<Rows> all = {x};
    for (size_t layer = 0; layer < layers_; ++layer) {
      const std::string at = cat("layers.", layer, ".");
      const bool window = has_window(layer, modern);
      Rows q, k, v;
      for (size_t t = 0; t < x.size(); ++t) {
        const Row y = modern && layer == 0 ? x[t] : normed(x[t], at + "input_layernorm");
        q.push_back(product(y, at + "self_attn.q_proj", bias));
        k.push_back(product(y, at + "self_attn.k_proj", bias));
        v.push_back(product(y, at + "self_attn.v_proj", bias));
        for (size_t head = 0; !modern && head < heads_; ++head) {
          rms_norm(std::span(q.back()).subspan(head * dim_, dim_), at + "self_attn.q_norm", eps);
        }
        for (size_t head = 0; !modern && head < keys_; ++head) {
          rms_norm(std::span(k.back()).subspan(head * dim_, dim_), at + "self_attn.k_norm", eps);
        }
        turn(q.back(), t, window, modern);
        turn(k.back(), t, window, modern);
      }
      const Rows seen = attended(
          q, k, v,
          [&](size_t r, size_t key) { return !window || (r > key ? r - key : key - r) <= reach; },
          [&](double dot, size_t, size_t, size_t) {
            return cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale;
          });
      for (size_t t = 0; t < x.size(); ++t) {
        Row y = product(seen[t], at + "self_attn.o_proj", bias);
        if (!modern) y = normed(y, at + "post_attention_layernorm");
        add(x[t], y);
        y = normed(x[t], at + (modern ? "post_attention_layernorm" : "pre_feedforward_layernorm"));
        Row inner = product(y, at + "mlp.gate_proj", false);
        const Row up = product(y, at + "mlp.up_proj", false);
        for (size_t i = 0; i < inner.size(); ++i)
          inner[i] = activated(activation, inner[i]) * up[i];
        y = product(inner, at + "mlp.down_proj", false);
        if (!modern) y = normed(y, at + "post_feedforward_layernorm");
        add(x[t], y);
      }
      all.push_back(x);
    }
    for (Row& row : x) row = normed(row, "norm");
    all.push_back(x);
    return all;
  }
  const Json json_;
  const Get get_;
  std::string type_;
  size_t channels_ = 0, heads_ = 0, keys_ = 0, dim_ = 0, layers_ = 0;
  mutable std::map<std::string, std::vector<float>> kept_;
};

}  // namespace split::test
