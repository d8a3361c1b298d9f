#include "models/qwen35_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace split {
namespace {

void check_product(const char* key, size_t heads, size_t dim) {
  const size_t channels = heads * dim;
  if (channels <= kMaxSize) return;
  ConfigReader::refuse(
      key, cat("expected at most ", kMaxSize, " channels of all heads, got ", channels));
}
void check_divides(const char* key, int number, const char* other, int of) {
  if (of % number == 0) return;
  ConfigReader::refuse(key, cat("expected a divisor of ", other, " ", of, ", got ", number));
}

// A word of ours for files of llama.cpp, whose value heads lie in another order: a program that
// does not know it refuses the model.
constexpr const char* kTiled = "tiled_linear_attention";

void read_kinds(const ConfigReader& reader, Qwen35Config& config) {
  const char* const key = "layer_types";
  if (reader.has(key)) {
    const Json& types = reader[key];
    config.state.tiled = types.is_array() && std::ranges::any_of(types, [](const Json& type) {
                           return type == Json(kTiled);
                         });
    config.full = reader.kinds(key, config.layers, "full_attention",
                               config.state.tiled ? kTiled : "linear_attention");
    return;
  }
  const int each = reader.integer_or("full_attention_interval", 1, kMaxSize, 4);
  for (int layer = 1; layer <= config.layers; ++layer) config.full.push_back(layer % each == 0);
}

void read_heads(const ConfigReader& reader, Qwen35Config& config) {
  config.heads = reader.integer("num_attention_heads", 1, kMaxSize);
  config.kv_heads = reader.integer_or("num_key_value_heads", 1, kMaxSize, config.heads);
  check_divides("num_key_value_heads", config.kv_heads, "num_attention_heads", config.heads);
  config.head_dim = reader.integer_or("head_dim", 2, 1 << 14, 256);
  check_product("head_dim", static_cast<size_t>(config.heads),
                static_cast<size_t>(config.head_dim));
  const auto size = [&](const char* key, int low, int high) {
    return static_cast<size_t>(reader.integer(key, low, high));
  };
  StateShape& state = config.state;
  state.key_heads = size("linear_num_key_heads", 1, kMaxSize);
  state.value_heads = size("linear_num_value_heads", 1, kMaxSize);
  check_divides("linear_num_key_heads", static_cast<int>(state.key_heads), "linear_num_value_heads",
                static_cast<int>(state.value_heads));
  state.key_dim = size("linear_key_head_dim", 1, kMostStateDim);
  state.value_dim = size("linear_value_head_dim", 1, kMostStateDim);
  check_product("linear_key_head_dim", state.key_heads, state.key_dim);
  check_product("linear_value_head_dim", state.value_heads, state.value_dim);
  state.taps = reader.has("linear_conv_kernel_dim")
                   ? size("linear_conv_kernel_dim", kLeastTaps, kMostTaps)
                   : 4;
}

void read_part(const ConfigReader& reader, Qwen35Config& config) {
  config.rope = read_rope(reader, "full_attention", config.max_positions, 0,
                          reader.number_or("partial_rotary_factor", 0, 1, 0.25));
  if (config.rope.theta == 0) reader.refuse("rope_theta", "expected a number, got none");
  config.turned = static_cast<int>(std::floor(config.head_dim * config.rope.part));
  if (config.turned < 2 || config.turned % 2 != 0) {
    reader.refuse("partial_rotary_factor",
                  cat("expected pairs of the ", config.head_dim, " channels of a head, got ",
                      config.turned, " channels"));
  }
  if (config.rope.type == RopeConfig::Type::kFactors &&
      config.rope.factors.size() != static_cast<size_t>(config.turned) / 2) {
    reader.refuse("rope_parameters.factors",
                  cat("expected ", config.turned / 2, ", got ", config.rope.factors.size()));
  }
}

}  // namespace

Qwen35Config read_qwen35_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const Json* const inside = json.find("text_config");
  if (inside != nullptr && !inside->is_object()) {
    ConfigReader::refuse("text_config",
                         cat("expected an object, got ", ConfigReader::shown(*inside)));
  }
  const ConfigReader whole(json), reader(inside != nullptr ? *inside : json);
  Qwen35Config config;
  config.model_type = whole.text_or("model_type", "");
  config.layers = reader.integer("num_hidden_layers", 1, 1024);
  config.channels = reader.integer("hidden_size", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.inner = reader.integer("intermediate_size", 1, kMaxSize);
  config.max_positions = reader.integer("max_position_embeddings", 1, 1 << 24);
  config.context = served_context(config.max_positions, context);
  read_kinds(reader, config);
  read_heads(reader, config);
  config.norm_eps = static_cast<float>(reader.number_or("rms_norm_eps", 1e-12, 1.0, 1e-6));
  if (const Op op = reader.activation_or("hidden_act", "silu"); op != Op::k_silu) {
    reader.refuse("hidden_act", cat("expected silu, got ", op_info(op).name));
  }
  if (!reader.boolean_or("attn_output_gate", true)) {
    reader.refuse("attn_output_gate", "expected true: queries have a gate each");
  }
  if (reader.boolean_or("attention_bias", false)) {
    reader.refuse("attention_bias", "expected false: products have no bias");
  }
  read_part(reader, config);
  // The outer one, where there are two: transformers ties by it.
  config.tied_head =
      whole.boolean_or("tie_word_embeddings", reader.boolean_or("tie_word_embeddings", false));
  config.stops = reader.tokens("eos_token_id");
  if (config.stops.empty()) config.stops = whole.tokens("eos_token_id");
  if (!config.stops.empty()) config.end_of_text = config.stops[0];
  return config;
}

}  // namespace split
