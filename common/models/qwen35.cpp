#include "models/qwen35.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/functional.h"
#include "models/llama.h"
#include "models/qwen35_config.h"

namespace split {
namespace {

class Qwen35 : public Model {
 public:
  explicit Qwen35(const Qwen35Config& config) : qwen_(config) {
    config_ = config;
    blobs_.push_back({"embed_tokens", {{"embed_tokens.weight", {config.vocab, config.channels}}}});
    stages_.push_back({.name = "embed",
                       .blobs = {"embed_tokens"},
                       .takes = Takes::kTokens,
                       .width = config.channels,
                       .trace = [this](const StageTypes& types) {
                         const Tensor rows = gather(stored("embed_tokens.weight", types),
                                                    input("tokens", DType::kI32, {kRows}));
                         return NamedOutput{"hidden", rows * 1.0f};  // a step has to make the rows
                       }});
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
    RopeTables tables = rope_tables(config.rope, config.turned, config.context);
    const Dims dims{config.context, config.turned / 2};
    constants_.push_back({"rope.cos", dims, std::move(tables.cos)});
    constants_.push_back({"rope.sin", dims, std::move(tables.sin)});
  }

  bool is_inside(std::string_view tensor) const override {
    return std::ranges::any_of(std::array{"layers.", "embed_tokens.", "norm."},
                               [&](const char* prefix) { return tensor.starts_with(prefix); });
  }

 private:
  bool is_full(int layer) const { return qwen_.full[static_cast<size_t>(layer)]; }

  void add_block(int layer) {
    const int64_t channels = qwen_.channels;
    const std::string name = cat("layers.", layer);
    std::vector<WeightDecl> weights;
    const auto vector = [&](const char* what, int64_t size) {
      weights.push_back({cat(name, ".", what), {size}});
    };
    const auto matrix = [&](const char* what, int64_t outputs, int64_t inputs,
                            Product product = Product::kOutIn) {
      weights.push_back({cat(name, ".", what, ".weight"), {outputs, inputs}, product});
    };
    vector("input_layernorm.weight", channels);
    if (is_full(layer)) {
      const int64_t width = int64_t{qwen_.heads} * qwen_.head_dim,
                    kv = int64_t{qwen_.kv_heads} * qwen_.head_dim;
      matrix("self_attn.q_proj", 2 * width, channels);
      matrix("self_attn.k_proj", kv, channels);
      matrix("self_attn.v_proj", kv, channels);
      vector("self_attn.q_norm.weight", qwen_.head_dim);
      vector("self_attn.k_norm.weight", qwen_.head_dim);
      matrix("self_attn.o_proj", channels, width);
    } else {
      const auto heads = static_cast<int64_t>(qwen_.state.value_heads),
                 values = heads * static_cast<int64_t>(qwen_.state.value_dim),
                 width = static_cast<int64_t>(qwen_.state.width());
      matrix("linear_attn.in_proj_qkv", width, channels);
      matrix("linear_attn.in_proj_z", values, channels);
      // Few numbers that all of a head's rows depend on: never in blocks.
      matrix("linear_attn.in_proj_b", heads, channels, Product::kNone);
      matrix("linear_attn.in_proj_a", heads, channels, Product::kNone);
      weights.push_back({cat(name, ".linear_attn.conv1d.weight"),
                         {width, 1, static_cast<int64_t>(qwen_.state.taps)}});
      for (const char* const what : {"A_log", "dt_bias"}) {
        weights.push_back(
            {.name = cat(name, ".linear_attn.", what), .dims = {heads}, .finite = true});
      }
      vector("linear_attn.norm.weight", static_cast<int64_t>(qwen_.state.value_dim));
      matrix("linear_attn.out_proj", channels, values);
    }
    vector("post_attention_layernorm.weight", channels);
    matrix("mlp.gate_proj", qwen_.inner, channels);
    matrix("mlp.up_proj", qwen_.inner, channels);
    matrix("mlp.down_proj", channels, qwen_.inner);
    blobs_.push_back({name, std::move(weights)});
    stages_.push_back(
        {.name = cat("block.", layer),
         .blobs = {name},
         .quantised = {name},
         .width = channels,
         .kv = is_full(layer) ? KvShape{.heads = qwen_.kv_heads, .head_dim = qwen_.head_dim}
                              : KvShape{.state = qwen_.state},
         .trace = [this, layer](const StageTypes& types) { return block(layer, types); }});
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".");
    const Tensor x = input("hidden", DType::kF32, {kRows, qwen_.channels});
    const Tensor normed = norm(x, cat(name, "input_layernorm.weight"), types);
    const Tensor x1 =
        x + (is_full(layer) ? attention_of(layer, normed, types) : delta_of(layer, normed, types));
    const Tensor inner = norm(x1, cat(name, "post_attention_layernorm.weight"), types);
    const Tensor up = product(inner, cat(name, "mlp.up_proj"), types);
    return {"hidden_out", x1 + product(silu(product(inner, cat(name, "mlp.gate_proj"), types)) * up,
                                       cat(name, "mlp.down_proj"), types)};
  }

  Tensor attention_of(int layer, const Tensor& x, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".self_attn.");
    const auto table = [&](const char* what) {
      return split::weight(what, DType::kF32, constant(what)->dims);
    };
    const Rotation rotation{table("rope.cos"), table("rope.sin"),
                            input("positions", DType::kI32, {kRows})};
    const auto turned = [&](const Tensor& of, const char* by, int heads) {
      return rotate(of, {stored(cat(name, by, ".weight"), types), qwen_.norm_eps, 1.0f}, rotation,
                    heads);
    };
    // A query and its gate, head by head.
    const Tensor both = product(x, name + "q_proj", types);
    const auto half = [&](int which) {
      return head_part(both, qwen_.heads, int64_t{which} * qwen_.head_dim, qwen_.head_dim);
    };
    const int64_t width = kv_width(layer);
    const Tensor attended =
        attention(turned(half(0), "q_norm", qwen_.heads),
                  turned(product(x, name + "k_proj", types), "k_norm", qwen_.kv_heads),
                  product(x, name + "v_proj", types), input("k_cache", types.cache, {width}),
                  input("v_cache", types.cache, {width}),
                  {.heads = qwen_.heads,
                   .kv_heads = qwen_.kv_heads,
                   .head_dim = qwen_.head_dim,
                   .scale = 1.0f / std::sqrt(static_cast<float>(qwen_.head_dim))});
    return product(attended * sigmoid(half(1)), name + "o_proj", types);
  }

  Tensor delta_of(int layer, const Tensor& x, const StageTypes& types) const {
    const std::string name = cat("layers.", layer, ".linear_attn.");
    const StateShape& shape = qwen_.state;
    const Tensor state = input("state", DType::kF32, {static_cast<int64_t>(shape.floats())});
    const Tensor mixed = conv_rows(product(x, name + "in_proj_qkv", types),
                                   stored(name + "conv1d.weight", types), state, shape);
    const Tensor o =
        delta(mixed, product(x, name + "in_proj_a", types), product(x, name + "in_proj_b", types),
              stored(name + "A_log", types), stored(name + "dt_bias", types), state, shape);
    const Tensor normed = norm_heads(o, {stored(name + "norm.weight", types), qwen_.norm_eps, 0.0f},
                                     static_cast<int>(shape.value_heads));
    return product(normed * silu(product(x, name + "in_proj_z", types)), name + "out_proj", types);
  }

  NamedOutput head(const StageTypes& types) const {
    return {"logits", matmul(normed_rows(types), transpose(stored(head_weight(types), types)))};
  }

  Tensor stored(const std::string& name, const StageTypes& types) const {
    const DType type = types.weight(name);
    return split::weight(name, type, stored_dims(weight(name), type));
  }
  Tensor product(const Tensor& x, const std::string& name, const StageTypes& types) const {
    return matmul(x, transpose(stored(name + ".weight", types)));
  }
  Tensor norm(const Tensor& x, const std::string& weight, const StageTypes& types) const {
    return rms_norm(x, stored(weight, types), qwen_.norm_eps, true);
  }
  Tensor normed_rows(const StageTypes& types) const {
    const Tensor x = gather(input("hidden", DType::kF32, {kRows, qwen_.channels}),
                            input("out_rows", DType::kI32, {kOutRows}));
    return norm(x, "norm.weight", types);
  }

  const Qwen35Config qwen_;
};

}  // namespace

std::unique_ptr<Model> make_qwen35(std::string_view config_json, std::optional<int> context) {
  return std::make_unique<Qwen35>(read_qwen35_config(config_json, context));
}

std::vector<std::string> qwen35_examples() {
  return {Json{
      {"model_type", "qwen3_5_text"},
      {"num_hidden_layers", 4},
      {"hidden_size", 16},
      {"intermediate_size", 24},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 8},
      {"linear_num_key_heads", 1},
      {"linear_num_value_heads", 2},
      {"linear_key_head_dim", 8},
      {"linear_value_head_dim", 8},
      {"linear_conv_kernel_dim", 4},
      {"rope_theta", 1e7},
      {"vocab_size", 16},
      {"max_position_embeddings",
       16}}.dump()};
}

bool is_beside_qwen35(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("visual.") || is_rotary_buffer(name);
}

}  // namespace split
