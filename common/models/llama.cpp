#include "models/llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/functional.h"
#include "models/llama_config.h"

namespace split {
namespace {

class Llama : public Model {
 public:
  explicit Llama(const LlamaConfig& config) : llama_(config) {
    config_ = config;
    const int64_t channels = config.channels;
    Blob& table = blobs_.emplace_back(
        Blob{"embed_tokens", {{"embed_tokens.weight", {config.vocab, channels}}}});
    if (config.traits.modern_bert) table.weights.push_back({"embed_norm.weight", {channels}});
    stages_.push_back({.name = "embed",
                       .blobs = {"embed_tokens"},
                       .takes = Takes::kTokens,
                       .width = channels,
                       .trace = [this](const StageTypes& types) { return embed(types); }});
    for (int layer = 0; layer < config.layers; ++layer) add_block(layer);
    blobs_.push_back({"norm", {{"norm.weight", {channels}}}});
    stages_.push_back({.name = "norm",
                       .blobs = {"norm"},
                       .takes = Takes::kOutRows,
                       .width = channels,
                       .trace = [this](const StageTypes& types) {
                         return NamedOutput{"normed", normed_rows(types)};
                       }});
    if (!config.encodes())
      add_head(config.tied_head, "embed_tokens",
               [this](const StageTypes& types) { return head(types); });
    add_tables("rope", config.rope);
    if (has_window_rope()) add_tables("window_rope", config.window_rope);
  }

  bool is_inside(std::string_view tensor) const override {
    return std::ranges::any_of(std::array{"layers.", "embed_tokens.", "embed_norm.", "norm."},
                               [&](const char* prefix) { return tensor.starts_with(prefix); });
  }

 private:
  void add_block(int layer) {
    const LlamaConfig& c = llama_;
    const int64_t channels = c.channels, inner = c.inner;
    const int64_t width = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
    const std::string name = cat("layers.", layer);
    std::vector<WeightDecl> weights;
    const auto vector = [&](const char* what, int64_t size) {
      weights.push_back({cat(name, ".", what, ".weight"), {size}});
    };
    const auto matrix = [&](const char* what, int64_t outputs, int64_t inputs, bool bias) {
      weights.push_back({cat(name, ".", what, ".weight"), {outputs, inputs}, Product::kOutIn});
      if (bias) weights.push_back({cat(name, ".", what, ".bias"), {outputs}});
    };
    if (has_input_norm(layer)) vector("input_layernorm", channels);
    matrix("self_attn.q_proj", width, channels, c.qkv_bias);
    matrix("self_attn.k_proj", kv, channels, c.qkv_bias);
    matrix("self_attn.v_proj", kv, channels, c.qkv_bias);
    if (c.traits.head_norms) {
      vector("self_attn.q_norm", c.head_dim);
      vector("self_attn.k_norm", c.head_dim);
    }
    matrix("self_attn.o_proj", channels, width, c.out_bias);
    vector("post_attention_layernorm", channels);
    if (c.traits.post_norms) {
      vector("pre_feedforward_layernorm", channels);
      vector("post_feedforward_layernorm", channels);
    }
    matrix("mlp.gate_proj", inner, channels, c.mlp_bias);
    matrix("mlp.up_proj", inner, channels, c.mlp_bias);
    matrix("mlp.down_proj", channels, inner, c.mlp_bias);
    if (c.traits.modern_bert) name_parts(name, weights);
    blobs_.push_back({name, std::move(weights)});
    stages_.push_back(
        {.name = cat("block.", layer),
         .blobs = {name},
         .quantised = {name},
         .width = channels,
         .kv = {c.kv_heads, c.head_dim, c.windows[static_cast<size_t>(layer)]},
         .trace = [this, layer](const StageTypes& types) { return block(layer, types); }});
  }

  bool has_input_norm(int layer) const { return layer > 0 || !llama_.traits.modern_bert; }

  // Names the matrices that are rows of one in the checkpoint, in its order.
  static void name_parts(const std::string& block, std::vector<WeightDecl>& weights) {
    for (const auto& [whole, parts] :
         {std::pair{".self_attn.qkv_proj", std::vector{"q_proj", "k_proj", "v_proj"}},
          {".mlp.gate_up_proj", std::vector{"gate_proj", "up_proj"}}}) {
      int64_t row = 0;
      for (WeightDecl& decl : weights) {
        const auto is_part = [&](const char* part) {
          return decl.name.ends_with(cat(part, ".weight"));
        };
        if (!std::ranges::any_of(parts, is_part)) continue;
        decl.from = cat(block, whole, ".weight");
        decl.from_row = std::exchange(row, row + decl.dims[0]);
      }
    }
  }

  bool has_window_rope() const { return !(llama_.window_rope == llama_.rope); }
  void add_tables(const std::string& name, const RopeConfig& rope) {
    RopeTables tables = rope_tables(rope, llama_.head_dim, llama_.context);
    const Dims dims{llama_.context, llama_.head_dim / 2};
    constants_.push_back({name + ".cos", dims, std::move(tables.cos)});
    constants_.push_back({name + ".sin", dims, std::move(tables.sin)});
  }
  Rotation rotation(int layer) const {
    const bool own = has_window_rope() && window(layer) > 0;
    const auto table = [&](const char* what) {
      const Constant& of = *constant(cat(own ? "window_rope" : "rope", what));
      return split::weight(of.name, DType::kF32, of.dims);
    };
    return {table(".cos"), table(".sin"), input("positions", DType::kI32, {kRows})};
  }

  NamedOutput embed(const StageTypes& types) const {
    const Tensor rows =
        gather(stored("embed_tokens.weight", types), input("tokens", DType::kI32, {kRows}));
    // Multiplied by one without a scale: a step has to make the rows.
    const double scale = llama_.traits.scaled_embedding ? std::sqrt(double(llama_.channels)) : 1;
    if (llama_.traits.modern_bert) return {"hidden", norm(rows, "embed_norm.weight", types)};
    return {"hidden", rows * static_cast<float>(scale)};
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".");
    const Tensor x = input("hidden", DType::kF32, {kRows, llama_.channels});
    const auto normed = [&](const Tensor& of, const char* by) {
      return norm(of, cat(name, by, ".weight"), types);
    };
    const Tensor attended =
        attention_of(layer, has_input_norm(layer) ? normed(x, "input_layernorm") : x, types);
    if (!llama_.traits.post_norms) {
      const Tensor x1 = x + attended;
      return {"hidden_out", x1 + mlp(name, normed(x1, "post_attention_layernorm"), types)};
    }
    const Tensor x1 = x + normed(attended, "post_attention_layernorm");
    const Tensor inner = mlp(name, normed(x1, "pre_feedforward_layernorm"), types);
    return {"hidden_out", x1 + normed(inner, "post_feedforward_layernorm")};
  }

  Tensor attention_of(int layer, const Tensor& x, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".self_attn.");
    const Rotation rotation = this->rotation(layer);
    const auto turned = [&](const char* what, const char* norm_name, int heads) {
      const Tensor projected = linear(x, name + what, llama_.qkv_bias, types);
      if (!llama_.traits.head_norms) return rotate(projected, rotation, heads);
      return rotate(projected,
                    {stored(cat(name, norm_name, ".weight"), types), llama_.norm_eps,
                     llama_.traits.plus_one ? 1.0f : 0.0f},
                    rotation, heads);
    };
    const Tensor q = turned("q_proj", "q_norm", llama_.heads);
    const Tensor k = turned("k_proj", "k_norm", llama_.kv_heads);
    const Tensor v = linear(x, name + "v_proj", llama_.qkv_bias, types);
    const int64_t width = kv_width(layer);
    const Tensor attended = attention(q, k, v, input("k_cache", types.cache, {width}),
                                      input("v_cache", types.cache, {width}),
                                      {.heads = llama_.heads,
                                       .kv_heads = llama_.kv_heads,
                                       .head_dim = llama_.head_dim,
                                       .scale = llama_.attention_scale,
                                       .window = window(layer),
                                       .cap = llama_.score_cap,
                                       .causal = !llama_.encodes()});
    return linear(attended, name + "o_proj", llama_.out_bias, types);
  }

  Tensor mlp(const std::string& block, const Tensor& x, const StageTypes& types) const {
    const auto product = [&](const Tensor& of, const char* what) {
      return linear(of, cat(block, "mlp.", what), llama_.mlp_bias, types);
    };
    const Tensor up = product(x, "up_proj");
    return product(unary(llama_.activation, product(x, "gate_proj")) * up, "down_proj");
  }

  NamedOutput head(const StageTypes& types) const {
    const Tensor logits = matmul(normed_rows(types), transpose(stored(head_weight(types), types)));
    if (llama_.logit_cap == 0) return {"logits", logits};  // [O, V]
    return {"logits", tanh(logits * (1.0f / llama_.logit_cap)) * llama_.logit_cap};
  }

  Tensor stored(const std::string& name, const StageTypes& types) const {
    const DType type = types.weight(name);
    return split::weight(name, type, stored_dims(weight(name), type));
  }
  Tensor linear(const Tensor& x, const std::string& name, bool bias,
                const StageTypes& types) const {
    const Tensor product = matmul(x, transpose(stored(name + ".weight", types)));
    return bias ? product + stored(name + ".bias", types) : product;
  }
  Tensor norm(const Tensor& x, const std::string& weight, const StageTypes& types) const {
    const Tensor by = stored(weight, types);
    if (llama_.traits.modern_bert) return layer_norm(x, by, llama_.norm_eps);
    return rms_norm(x, by, llama_.norm_eps, llama_.traits.plus_one);
  }
  Tensor normed_rows(const StageTypes& types) const {
    const Tensor x = gather(input("hidden", DType::kF32, {kRows, llama_.channels}),
                            input("out_rows", DType::kI32, {kOutRows}));
    return norm(x, "norm.weight", types);
  }

  const LlamaConfig llama_;
};

}  // namespace

std::unique_ptr<Model> make_llama(std::string_view config_json, std::optional<int> context) {
  return std::make_unique<Llama>(read_llama_config(config_json, context));
}

std::vector<std::string> llama_examples() {
  std::vector<std::string> configs;
  for (const LlamaTraits& traits : llama_traits()) {
    configs.push_back(Json{
        {"model_type", traits.model_type},
        {"num_hidden_layers", 2},
        {"hidden_size", 16},
        {"intermediate_size", 24},
        {"num_attention_heads", 4},
        {"num_key_value_heads", 2},
        {"head_dim", 8},
        {"vocab_size", 16},
        {"max_position_embeddings", 16},
        {"attn_logit_softcapping", 3.0},
        {"final_logit_softcapping", 2.0},
        {"query_pre_attn_scalar", 8},
        {"sliding_window",
         5}}.dump());
  }
  return configs;
}

bool is_beside_modern_bert(std::string_view name) {
  return name.starts_with("head.") || name.starts_with("decoder.") ||
         name.starts_with("classifier.") || is_rotary_buffer(name);
}

bool is_rotary_buffer(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("rotary_emb.cos_cached") ||
         name.ends_with("rotary_emb.sin_cached");
}

}  // namespace split
