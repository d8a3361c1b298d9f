#include "models/gemma4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/functional.h"
#include "models/gemma4_config.h"
#include "models/llama.h"

namespace split {
namespace {

constexpr const char* kTable = "embed_tokens_per_layer.weight";
constexpr const char* kInputs = "per_layer_inputs";

std::string keys_of(int source) { return cat("keys.", source); }
std::string values_of(int source) { return cat("values.", source); }

class Gemma4 : public Model {
 public:
  explicit Gemma4(const Gemma4Config& config) : gemma_(config) {
    config_ = config;
    add_embedding();
    for (int layer = 0; layer < config.layers; ++layer) add_block(layer);
    blobs_.push_back({"norm", {{"norm.weight", {config.channels}}}});
    stages_.push_back({.name = "norm",
                       .blobs = {"norm"},
                       .takes = Takes::kOutRows,
                       .width = config.channels,
                       .trace = [this](const StageTypes& types) {
                         return NamedOutput{"normed", normed_rows(types)};
                       }});
    add_head(config.tied_head, "embed_tokens",
             [this](const StageTypes& types) { return head(types); });
    for (const Gemma4Block& block : config.blocks) {
      const std::string kind = kind_of(block);
      if (constant(kind + ".cos") != nullptr) continue;
      RopeTables tables = rope_tables(block.full ? config.rope : config.window_rope, block.head_dim,
                                      config.context);
      const Dims dims{config.context, block.head_dim / 2};
      constants_.push_back({kind + ".cos", dims, std::move(tables.cos)});
      constants_.push_back({kind + ".sin", dims, std::move(tables.sin)});
      constants_.push_back({kind + ".ones",
                            {block.head_dim},
                            std::vector<float>(static_cast<size_t>(block.head_dim), 1.0f)});
    }
  }

  bool is_inside(std::string_view tensor) const override {
    for (int layer = 0; layer < gemma_.layers; ++layer) {
      const std::string attention = cat("layers.", layer, ".self_attn.");
      if (block_at(layer).own || !tensor.starts_with(attention)) continue;
      // Files hold keys and values of blocks that share them too.
      const std::string_view rest = tensor.substr(attention.size());
      if (rest.starts_with("k_") || rest.starts_with("v_")) return false;
    }
    return std::ranges::any_of(std::array{"layers.", "embed_tokens", "norm.", "per_layer_"},
                               [&](const char* prefix) { return tensor.starts_with(prefix); });
  }

 private:
  const Gemma4Block& block_at(int layer) const { return gemma_.blocks[static_cast<size_t>(layer)]; }
  static std::string kind_of(const Gemma4Block& block) { return block.full ? "full" : "window"; }
  int64_t all_inputs() const { return int64_t{gemma_.per_layer} * gemma_.layers; }

  bool is_taken_over(int layer) const {
    return std::ranges::any_of(gemma_.blocks, [&](const Gemma4Block& block) {
      return !block.own && block.source == layer;
    });
  }

  void add_embedding() {
    const int64_t channels = gemma_.channels;
    blobs_.push_back({"embed_tokens", {{"embed_tokens.weight", {gemma_.vocab, channels}}}});
    Stage& stage = stages_.emplace_back();
    stage.name = "embed";
    stage.blobs = {"embed_tokens"};
    stage.takes = Takes::kTokens;
    stage.width = channels;
    stage.trace = [this](const StageTypes& types) {
      return NamedOutput{"hidden", embedded(types)};
    };
    if (gemma_.per_layer == 0) return;
    blobs_.push_back({"embed_tokens_per_layer",
                      {{.name = kTable, .dims = {gemma_.vocab, all_inputs()}, .looked_up = true}}});
    // Never in blocks: small beside the table, and all blocks depend on it.
    blobs_.push_back({"per_layer",
                      {{"per_layer_model_projection.weight", {all_inputs(), channels}},
                       {"per_layer_projection_norm.weight", {gemma_.per_layer}}}});
    stage.blobs.insert(stage.blobs.end(), {"embed_tokens_per_layer", "per_layer"});
    stage.tables = {kTable};
    config_.row_parts.push_back({kInputs, all_inputs(), gemma_.per_layer, 0, gemma_.layers - 1});
    stage.trace = [this](const StageTypes& types) {
      return NamedOutput{"hidden", embedded(types), {{kInputs, inputs_of_blocks(types)}}};
    };
  }

  // Rows have the keys and values of a block's source up to the block.
  void add_parts(int layer, int64_t columns) {
    const int source = block_at(layer).source;
    for (const std::string& name : {keys_of(source), values_of(source)}) {
      const auto at = std::ranges::find(config_.row_parts, name, &RowPart::name);
      if (at != config_.row_parts.end()) {
        at->last = layer;
      } else {
        config_.row_parts.push_back({name, columns, 0, source + 1, layer});
      }
    }
  }

  void add_block(int layer) {
    const Gemma4Block& b = block_at(layer);
    const int64_t channels = gemma_.channels, width = int64_t{gemma_.heads} * b.head_dim,
                  kv = int64_t{b.kv_heads} * b.head_dim;
    const std::string name = cat("layers.", layer);
    std::vector<WeightDecl> weights;
    const auto vector = [&](const char* what, int64_t size) {
      weights.push_back({cat(name, ".", what, ".weight"), {size}});
    };
    const auto matrix = [&](const char* what, int64_t outputs, int64_t inputs,
                            Product product = Product::kOutIn) {
      weights.push_back({cat(name, ".", what, ".weight"), {outputs, inputs}, product});
    };
    if (!b.own) add_parts(layer, kv);
    vector("input_layernorm", channels);
    matrix("self_attn.q_proj", width, channels);
    if (b.own) matrix("self_attn.k_proj", kv, channels);
    if (b.own && b.values) matrix("self_attn.v_proj", kv, channels);
    vector("self_attn.q_norm", b.head_dim);
    if (b.own) vector("self_attn.k_norm", b.head_dim);
    matrix("self_attn.o_proj", channels, width);
    vector("post_attention_layernorm", channels);
    vector("pre_feedforward_layernorm", channels);
    matrix("mlp.gate_proj", b.inner, channels);
    matrix("mlp.up_proj", b.inner, channels);
    matrix("mlp.down_proj", channels, b.inner);
    vector("post_feedforward_layernorm", channels);
    if (gemma_.per_layer > 0) {
      matrix("per_layer_input_gate", gemma_.per_layer, channels, Product::kNone);
      matrix("per_layer_projection", channels, gemma_.per_layer, Product::kNone);
      vector("post_per_layer_input_norm", channels);
    }
    weights.push_back({.name = name + ".layer_scalar", .dims = {1}, .spread = channels});
    blobs_.push_back({name, std::move(weights)});
    stages_.push_back(
        {.name = cat("block.", layer),
         .blobs = {name},
         .quantised = {name},
         .width = channels,
         .kv = {b.kv_heads, b.head_dim, b.window, {}, b.source},
         .trace = [this, layer](const StageTypes& types) { return block(layer, types); }});
  }

  Tensor embedded(const StageTypes& types) const {
    return gather(stored("embed_tokens.weight", types), input("tokens", DType::kI32, {kRows})) *
           std::sqrt(static_cast<float>(gemma_.channels));
  }

  // The inputs of all blocks, side by side: what the token has in a table of its own, and what is
  // made of its embedding.
  Tensor inputs_of_blocks(const StageTypes& types) const {
    const Tensor made = product(embedded(types), "per_layer_model_projection", types) *
                        (1.0f / std::sqrt(static_cast<float>(gemma_.channels)));
    const Tensor normed =
        norm_heads(made, {stored("per_layer_projection_norm.weight", types), gemma_.norm_eps, 0.0f},
                   gemma_.layers);
    const Tensor own = input(kTable, DType::kF32, {kRows, all_inputs()}) *
                       std::sqrt(static_cast<float>(gemma_.per_layer));
    return (normed + own) * std::sqrt(0.5f);
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".");
    const auto normed = [&](const Tensor& of, const char* by) {
      return norm(of, cat(name, by, ".weight"), types);
    };
    const auto by = [&](const Tensor& of, const char* what) {
      return product(of, name + what, types);
    };
    const Tensor x = input("hidden", DType::kF32, {kRows, gemma_.channels});
    const auto [attended, kept] = attention_of(layer, normed(x, "input_layernorm"), types);
    const Tensor x1 = x + normed(attended, "post_attention_layernorm");
    const Tensor inner = normed(x1, "pre_feedforward_layernorm");
    const Tensor up = by(inner, "mlp.up_proj");
    const Tensor mixed =
        by(unary(gemma_.activation, by(inner, "mlp.gate_proj")) * up, "mlp.down_proj");
    Tensor x2 = x1 + normed(mixed, "post_feedforward_layernorm");
    if (gemma_.per_layer > 0) {
      const Tensor own = head_part(input(kInputs, DType::kF32, {kRows, all_inputs()}), 1,
                                   int64_t{layer} * gemma_.per_layer, gemma_.per_layer);
      const Tensor gated = unary(gemma_.activation, by(x2, "per_layer_input_gate")) * own;
      x2 = x2 + normed(by(gated, "per_layer_projection"), "post_per_layer_input_norm");
    }
    const std::string scalar = name + "layer_scalar";
    return {"hidden_out", x2 * split::weight(scalar, types.weight(scalar), {gemma_.channels}),
            kept};
  }

  // Its result, and the keys and values that later blocks take over. These store them again, so
  // that a row needs no block before them.
  std::pair<Tensor, std::vector<NamedOutput>> attention_of(int layer, const Tensor& x,
                                                           const StageTypes& types) const {
    const Gemma4Block& b = block_at(layer);
    const std::string name = cat("layers.", layer, ".self_attn.");
    const auto table = [&](const char* what) {
      const Constant& of = *constant(kind_of(b) + what);
      return split::weight(of.name, DType::kF32, of.dims);
    };
    const Rotation rotation{table(".cos"), table(".sin"), input("positions", DType::kI32, {kRows})};
    const auto turned = [&](const Tensor& of, const char* by, int heads) {
      return rotate(of, {stored(cat(name, by, ".weight"), types), gemma_.norm_eps, 0.0f}, rotation,
                    heads);
    };
    const Tensor q = turned(product(x, name + "q_proj", types), "q_norm", gemma_.heads);
    const int64_t width = kv_width(layer);
    const std::string keys = keys_of(b.source), values = values_of(b.source);
    Tensor k = input(keys, DType::kF32, {kRows, width});
    Tensor v = input(values, DType::kF32, {kRows, width});
    std::vector<NamedOutput> kept;
    if (b.own) {
      const Tensor raw = product(x, name + "k_proj", types);
      k = turned(raw, "k_norm", b.kv_heads);
      v = norm_heads(b.values ? product(x, name + "v_proj", types) : raw,
                     {table(".ones"), gemma_.norm_eps, 0.0f}, b.kv_heads);
      if (is_taken_over(layer)) kept = {{keys, k}, {values, v}};
    }
    const Tensor attended = attention(q, k, v, input("k_cache", types.cache, {width}),
                                      input("v_cache", types.cache, {width}),
                                      {.heads = gemma_.heads,
                                       .kv_heads = b.kv_heads,
                                       .head_dim = b.head_dim,
                                       .window = b.window});
    return {product(attended, name + "o_proj", types), std::move(kept)};
  }

  NamedOutput head(const StageTypes& types) const {
    const Tensor logits = matmul(normed_rows(types), transpose(stored(head_weight(types), types)));
    if (gemma_.logit_cap == 0) return {"logits", logits};
    return {"logits", tanh(logits * (1.0f / gemma_.logit_cap)) * gemma_.logit_cap};
  }

  Tensor stored(const std::string& name, const StageTypes& types) const {
    const DType type = types.weight(name);
    return split::weight(name, type, stored_dims(weight(name), type));
  }
  Tensor product(const Tensor& x, const std::string& name, const StageTypes& types) const {
    return matmul(x, transpose(stored(name + ".weight", types)));
  }
  Tensor norm(const Tensor& x, const std::string& weight, const StageTypes& types) const {
    return rms_norm(x, stored(weight, types), gemma_.norm_eps);
  }
  Tensor normed_rows(const StageTypes& types) const {
    const Tensor x = gather(input("hidden", DType::kF32, {kRows, gemma_.channels}),
                            input("out_rows", DType::kI32, {kOutRows}));
    return norm(x, "norm.weight", types);
  }

  const Gemma4Config gemma_;
};

}  // namespace

std::unique_ptr<Model> make_gemma4(std::string_view config_json, std::optional<int> context) {
  return std::make_unique<Gemma4>(read_gemma4_config(config_json, context));
}

std::vector<std::string> gemma4_examples() {
  std::vector<std::string> configs;
  for (const bool shares : {false, true}) {
    configs.push_back(Json{
        {"model_type", "gemma4_text"},
        {"num_hidden_layers", 4},
        {"layer_types", Json::array({"sliding_attention", "full_attention", "sliding_attention",
                                     "full_attention"})},
        {"hidden_size", 16},
        {"intermediate_size", 24},
        {"num_attention_heads", 4},
        {"num_key_value_heads", 2},
        {"head_dim", 8},
        {"global_head_dim", 16},
        {"attention_k_eq_v", !shares},
        {"num_kv_shared_layers", shares ? 2 : 0},
        {"hidden_size_per_layer_input", shares ? 8 : 0},
        {"final_logit_softcapping", 2.0},
        {"sliding_window", 5},
        {"vocab_size", 16},
        {"max_position_embeddings",
         16}}.dump());
  }
  return configs;
}

bool is_beside_gemma4(std::string_view name) {
  return std::ranges::any_of(
             std::array{"embed_audio.", "embed_vision.", "audio_tower.", "vision_tower."},
             [&](const char* prefix) { return name.starts_with(prefix); }) ||
         is_rotary_buffer(name);
}

}  // namespace split
