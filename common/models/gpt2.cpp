#include "models/gpt2.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "models/functional.h"

namespace split {
namespace {

// One field of config.json at a time, each checked.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int integer(const char* key, int low, int high) const {
    if (!has(key)) refuse(key, cat("expected a whole number in ", low, "..", high, ", got none"));
    const Json& value = json_[key];
    if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > high) {
      refuse(key, cat("expected a whole number in ", low, "..", high, ", got ", shown(value)));
    }
    return value.get<int>();
  }
  int integer_or(const char* key, int low, int high, int otherwise) const {
    return has(key) ? integer(key, low, high) : otherwise;
  }
  bool boolean_or(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean())
      refuse(key, cat("expected true or false, got ", shown(json_[key])));
    return json_[key].get<bool>();
  }
  double number_or(const char* key, double low, double high, double otherwise) const {
    if (!has(key)) return otherwise;
    const Json& value = json_[key];
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
      refuse(key, cat("expected a number in ", low, "..", high, ", got ", shown(value)));
    }
    return value.get<double>();
  }
  std::string text_or(const char* key, const char* otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(key, cat("expected a string, got ", shown(json_[key])));
    return json_[key].get<std::string>();
  }
  [[noreturn]] static void refuse(const char* key, const std::string& why) {
    throw Error(ErrorKind::kInput, cat("[config.json] ", key, ": ", why));
  }

  static std::string shown(const Json& value) {
    const std::string text = value.dump({.ascii = true});
    return text.size() <= 40 ? text : text.substr(0, 40) + "...";
  }

 private:
  const Json& json_;
};

// Sizes are capped so that no product of two overflows and no allocation is absurd.
constexpr int kMaxSize = 1 << 20;

// The table's name of the activation: transformers has several for some.
std::string activation_of(const ConfigReader& reader) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"gelu_new", "gelu_new"},  {"gelu_pytorch_tanh", "gelu_new"},
      {"gelu_fast", "gelu_new"}, {"gelu", "gelu"},
      {"gelu_python", "gelu"},   {"relu", "relu"},
      {"silu", "silu"},          {"swish", "silu"}};
  const std::string asked = reader.text_or("activation_function", "gelu_new");
  for (const auto& [theirs, ours] : kNames) {
    if (asked == theirs) return std::string(ours);
  }
  reader.refuse("activation_function",
                "expected gelu_new, gelu, relu or silu, got " + split::shown(asked));
}

ModelConfig read_config(std::string_view config_json) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const ConfigReader reader(json);
  ModelConfig config;
  config.model_type = "gpt2";
  config.layers = reader.integer("n_layer", 1, 1024);
  config.channels = reader.integer("n_embd", 1, kMaxSize);
  config.heads = reader.integer("n_head", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, 1 << 24);
  config.context = reader.has("n_positions") ? reader.integer("n_positions", 1, kMaxSize)
                                             : reader.integer("n_ctx", 1, kMaxSize);
  if (config.channels % config.heads != 0) {
    reader.refuse("n_head",
                  cat("expected a divisor of n_embd ", config.channels, ", got ", config.heads));
  }
  config.inner = reader.integer_or("n_inner", 1, kMaxSize, 4 * config.channels);
  config.norm_eps = static_cast<float>(reader.number_or("layer_norm_epsilon", 1e-12, 1.0, 1e-5));
  config.activation = activation_of(reader);
  config.scale_attention = reader.boolean_or("scale_attn_weights", true);
  config.scale_by_layer = reader.boolean_or("scale_attn_by_inverse_layer_idx", false);
  if (reader.boolean_or("add_cross_attention", false)) {
    reader.refuse("add_cross_attention", "expected false: cross attention is not supported");
  }
  if (reader.has("quantization_config")) {
    reader.refuse("quantization_config",
                  cat("expected none, got ", ConfigReader::shown(json["quantization_config"]),
                      ": weights packed by other tools are not supported"));
  }
  // reorder_and_upcast_attn changes the order of a product only, which is within the stated error.
  config.tied_head = reader.boolean_or("tie_word_embeddings", true);
  config.end_of_text = reader.integer_or("eos_token_id", -1, (1 << 24) - 1, -1);
  return config;
}

class Gpt2 : public Model {
 public:
  explicit Gpt2(ModelConfig config) {
    config_ = std::move(config);
    const int64_t channels = config_.channels, inner = config_.inner;
    blobs_.push_back({"wte", {{"wte.weight", {config_.vocab, channels}}}});
    blobs_.push_back({"wpe", {{"wpe.weight", {config_.context, channels}}}});
    stages_.push_back({"embed", {"wte", "wpe"}});
    for (int layer = 0; layer < config_.layers; ++layer) {
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
      stages_.push_back({cat("block.", layer), {h}, {h}});
    }
    blobs_.push_back({"ln_f", {{"ln_f.weight", {channels}}, {"ln_f.bias", {channels}}}});
    stages_.push_back({"norm", {"ln_f"}});
    // A tied head is the embedding's blob, but for its quantised copies: the embedding has none.
    const bool tied = config_.tied_head;
    blobs_.push_back({"lm_head",
                      {{"lm_head.weight",
                        {config_.vocab, channels},
                        Product::kOutIn,
                        tied ? "wte.weight" : ""}}});
    stages_.push_back({"head", {tied ? "wte" : "lm_head"}, {"lm_head"}});
  }

  std::vector<NamedOutput> trace_embed(const DTypeOf& dtype) const override {
    const Tensor tokens = input("tokens", DType::kI32, {kRows});
    const Tensor positions = input("positions", DType::kI32, {kRows});
    const Tensor x = gather(stored("wte.weight", dtype), tokens) +
                     gather(stored("wpe.weight", dtype), positions);  // [R, C]
    return {{"hidden", x}};
  }

  std::vector<NamedOutput> trace_block(int layer, const DTypeOf& dtype,
                                       DType cache) const override {
    const std::string h = cat("h.", layer, ".");
    const auto w = [&](const char* name) { return stored(h + name, dtype); };
    const int64_t channels = config_.channels;
    const Tensor x = input("hidden", DType::kF32, {kRows, channels});
    const Tensor normed = layer_norm(x, w("ln_1.weight"), w("ln_1.bias"), config_.norm_eps);
    const auto m = [&](const char* name) { return matrix(h + name, dtype); };
    const Tensor qkv = linear(normed, m("attn.c_attn.weight"), w("attn.c_attn.bias"));  // [R, 3 C]
    const Tensor attended =
        attention(qkv, input("k_cache", cache, {channels}), input("v_cache", cache, {channels}),
                  {config_.heads, config_.heads, config_.channels / config_.heads,
                   attention_scale(layer)});  // [R, C]
    const Tensor x1 = x + linear(attended, m("attn.c_proj.weight"), w("attn.c_proj.bias"));
    const Tensor normed1 = layer_norm(x1, w("ln_2.weight"), w("ln_2.bias"), config_.norm_eps);
    const Tensor inner = activation(linear(normed1, m("mlp.c_fc.weight"), w("mlp.c_fc.bias")));
    return {{"hidden_out", x1 + linear(inner, m("mlp.c_proj.weight"), w("mlp.c_proj.bias"))}};
  }

  std::vector<NamedOutput> trace_norm(const DTypeOf& dtype) const override {
    return {{"normed", normed_rows(dtype)}};
  }

  std::vector<NamedOutput> trace_head(const DTypeOf& dtype) const override {
    const bool wte = config_.tied_head && !is_quantised(dtype("lm_head.weight"));
    const Tensor vocabulary =
        wte ? transpose(stored("wte.weight", dtype)) : matrix("lm_head.weight", dtype);
    return {{"logits", matmul(normed_rows(dtype), vocabulary)}};  // [O, V]
  }

 private:
  Tensor stored(const std::string& name, const DTypeOf& dtype) const {
    const DType type = dtype(name);
    return split::weight(name, type, stored_dims(weight(name), type));
  }
  // One to multiply by: [inputs, outputs].
  Tensor matrix(const std::string& name, const DTypeOf& dtype) const {
    const Tensor w = stored(name, dtype);
    const bool rows_are_outputs =
        is_quantised(w.node()->dtype) || weight(name).product == Product::kOutIn;
    return rows_are_outputs ? transpose(w) : w;
  }

  Tensor normed_rows(const DTypeOf& dtype) const {
    const Tensor x = gather(input("hidden", DType::kF32, {kRows, config_.channels}),
                            input("out_rows", DType::kI32, {kOutRows}));
    return layer_norm(x, stored("ln_f.weight", dtype), stored("ln_f.bias", dtype),
                      config_.norm_eps);
  }

  Tensor activation(const Tensor& x) const {
    if (config_.activation == "gelu_new") return gelu_new(x);
    if (config_.activation == "gelu") return gelu(x);
    if (config_.activation == "relu") return relu(x);
    return silu(x);
  }

  float attention_scale(int layer) const {
    double scale = 1;
    const auto head_dim = config_.channels / config_.heads;
    if (config_.scale_attention) scale /= std::sqrt(double(head_dim));
    if (config_.scale_by_layer) scale /= layer + 1;
    return static_cast<float>(scale);
  }
};

}  // namespace

std::unique_ptr<Model> make_gpt2(std::string_view config_json) {
  return std::make_unique<Gpt2>(read_config(config_json));
}

}  // namespace split
