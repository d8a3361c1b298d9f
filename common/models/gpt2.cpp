#include "models/gpt2.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/json.h"
#include "models/config_reader.h"
#include "models/functional.h"

namespace split {
namespace {

// Settings of GPT-2's config.json beyond those that all models have.
struct Gpt2Config : ModelConfig {
  float norm_eps = 1e-5f;
  Op activation = Op::k_gelu_new;
  bool scale_attention = true;  // factor 1 / sqrt(D)
  bool scale_by_layer = false;  // another factor 1 / (layer + 1)
  bool tied_head = true;
};

Gpt2Config read_gpt2_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const ConfigReader reader(json);
  Gpt2Config config;
  config.model_type = "gpt2";
  config.layers = reader.integer("n_layer", 1, 1024);
  config.channels = reader.integer("n_embd", 1, kMaxSize);
  config.heads = reader.integer("n_head", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.max_positions = reader.has("n_positions") ? reader.integer("n_positions", 1, kMaxSize)
                                                   : reader.integer("n_ctx", 1, kMaxSize);
  config.context = served_context(config.max_positions, context);
  if (config.channels % config.heads != 0) {
    reader.refuse("n_head",
                  cat("expected a divisor of n_embd ", config.channels, ", got ", config.heads));
  }
  config.kv_heads = config.heads;
  config.head_dim = config.channels / config.heads;
  config.inner = reader.integer_or("n_inner", 1, kMaxSize, 4 * config.channels);
  config.norm_eps = static_cast<float>(reader.number_or("layer_norm_epsilon", 1e-12, 1.0, 1e-5));
  config.activation = reader.activation_or("activation_function", "gelu_new");
  config.scale_attention = reader.boolean_or("scale_attn_weights", true);
  config.scale_by_layer = reader.boolean_or("scale_attn_by_inverse_layer_idx", false);
  if (reader.boolean_or("add_cross_attention", false)) {
    reader.refuse("add_cross_attention", "expected false: cross attention is not supported");
  }
  // reorder_and_upcast_attn only changes the order of a product, within the stated error.
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  config.stops = reader.tokens("eos_token_id");
  if (!config.stops.empty()) config.end_of_text = config.stops[0];
  return config;
}

class Gpt2 : public Model {
 public:
  explicit Gpt2(const Gpt2Config& config) : gpt2_(config) {
    config_ = config;
    const int64_t channels = config.channels, inner = config.inner;
    blobs_.push_back({"wte", {{"wte.weight", {config.vocab, channels}}}});
    blobs_.push_back({"wpe", {{"wpe.weight", {config.max_positions, channels}}}});
    stages_.push_back({.name = "embed",
                       .blobs = {"wte", "wpe"},
                       .takes = Takes::kTokens,
                       .width = channels,
                       .trace = [this](const StageTypes& types) { return embed(types); }});
    for (int layer = 0; layer < config.layers; ++layer) {
      const std::string h = cat("h.", layer);
      blobs_.push_back({h,
                        {{h + ".ln_1.weight", {channels}},
                         {h + ".ln_1.bias", {channels}},
                         {h + ".attn.c_attn.weight", {channels, 3 * channels}, Product::kInOut},
                         {h + ".attn.c_attn.bias", {3 * channels}},
                         {h + ".attn.c_proj.weight", {channels, channels}, Product::kInOut},
                         {h + ".attn.c_proj.bias", {channels}},
                         {h + ".ln_2.weight", {channels}},
                         {h + ".ln_2.bias", {channels}},
                         {h + ".mlp.c_fc.weight", {channels, inner}, Product::kInOut},
                         {h + ".mlp.c_fc.bias", {inner}},
                         {h + ".mlp.c_proj.weight", {inner, channels}, Product::kInOut},
                         {h + ".mlp.c_proj.bias", {channels}}}});
      stages_.push_back(
          {.name = cat("block.", layer),
           .blobs = {h},
           .quantised = {h},
           .width = channels,
           .kv = {config.kv_heads, config.head_dim},
           .trace = [this, layer](const StageTypes& types) { return block(layer, types); }});
    }
    blobs_.push_back({"ln_f", {{"ln_f.weight", {channels}}, {"ln_f.bias", {channels}}}});
    stages_.push_back({.name = "norm",
                       .blobs = {"ln_f"},
                       .takes = Takes::kOutRows,
                       .width = channels,
                       .trace = [this](const StageTypes& types) {
                         return NamedOutput{"normed", normed_rows(types)};
                       }});
    add_head(config.tied_head, "wte", [this](const StageTypes& types) { return head(types); });
  }

  bool is_inside(std::string_view tensor) const override {
    return std::ranges::any_of(std::array{"h.", "wte.", "wpe.", "ln_f."},
                               [&](const char* prefix) { return tensor.starts_with(prefix); });
  }

 private:
  NamedOutput embed(const StageTypes& types) const {
    const Tensor tokens = input("tokens", DType::kI32, {kRows});
    const Tensor positions = input("positions", DType::kI32, {kRows});
    return {"hidden", gather(stored("wte.weight", types), tokens) +
                          gather(stored("wpe.weight", types), positions)};  // [R, C]
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string h = cat("h.", layer, ".");
    const auto w = [&](const char* name) { return stored(h + name, types); };
    const int64_t channels = gpt2_.channels;
    const Tensor x = input("hidden", DType::kF32, {kRows, channels});
    const Tensor normed = layer_norm(x, w("ln_1.weight"), w("ln_1.bias"), gpt2_.norm_eps);
    const auto m = [&](const char* name) { return matrix(h + name, types); };
    const Tensor qkv = linear(normed, m("attn.c_attn.weight"), w("attn.c_attn.bias"));  // [R, 3 C]
    const Tensor attended = attention(
        qkv, input("k_cache", types.cache, {channels}), input("v_cache", types.cache, {channels}),
        {gpt2_.heads, gpt2_.kv_heads, gpt2_.head_dim, attention_scale(layer)});  // [R, C]
    const Tensor x1 = x + linear(attended, m("attn.c_proj.weight"), w("attn.c_proj.bias"));
    const Tensor normed1 = layer_norm(x1, w("ln_2.weight"), w("ln_2.bias"), gpt2_.norm_eps);
    const Tensor inner =
        unary(gpt2_.activation, linear(normed1, m("mlp.c_fc.weight"), w("mlp.c_fc.bias")));
    return {"hidden_out", x1 + linear(inner, m("mlp.c_proj.weight"), w("mlp.c_proj.bias"))};
  }

  NamedOutput head(const StageTypes& types) const {
    const std::string name = head_weight(types);
    const Tensor vocabulary =
        name == "wte.weight" ? transpose(stored(name, types)) : matrix(name, types);
    return {"logits", matmul(normed_rows(types), vocabulary)};  // [O, V]
  }

  Tensor stored(const std::string& name, const StageTypes& types) const {
    const DType type = types.weight(name);
    return split::weight(name, type, stored_dims(weight(name), type));
  }
  // A matrix to multiply by: [inputs, outputs].
  Tensor matrix(const std::string& name, const StageTypes& types) const {
    const Tensor w = stored(name, types);
    const bool rows_are_outputs =
        is_quantised(w.node()->dtype) || weight(name).product == Product::kOutIn;
    return rows_are_outputs ? transpose(w) : w;
  }

  Tensor normed_rows(const StageTypes& types) const {
    const Tensor x = gather(input("hidden", DType::kF32, {kRows, gpt2_.channels}),
                            input("out_rows", DType::kI32, {kOutRows}));
    return layer_norm(x, stored("ln_f.weight", types), stored("ln_f.bias", types), gpt2_.norm_eps);
  }

  float attention_scale(int layer) const {
    double scale = 1;
    if (gpt2_.scale_attention) scale /= std::sqrt(double(gpt2_.head_dim));
    if (gpt2_.scale_by_layer) scale /= layer + 1;
    return static_cast<float>(scale);
  }

  const Gpt2Config gpt2_;
};

}  // namespace

std::unique_ptr<Model> make_gpt2(std::string_view config_json, std::optional<int> context) {
  return std::make_unique<Gpt2>(read_gpt2_config(config_json, context));
}

std::vector<std::string> gpt2_examples() {
  std::map<Op, std::string> all;
  for (const auto& [name, op] : activations()) {
    all.emplace(op, Json{{"model_type", "gpt2"},
                         {"n_layer", 1},
                         {"n_embd", 8},
                         {"n_head", 1},
                         {"vocab_size", 8},
                         {"n_positions", 8},
                         {"activation_function", name}}
                        .dump());
  }
  std::vector<std::string> configs;
  for (auto& [op, config] : all) configs.push_back(std::move(config));
  return configs;
}

bool is_gpt2_mask(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  name.remove_prefix(digits);
  return digits > 0 && (name == ".attn.bias" || name == ".attn.masked_bias");
}

}  // namespace split
