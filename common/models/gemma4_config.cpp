#include "models/gemma4_config.h"

#include <algorithm>

#include "base/error.h"

namespace split {
namespace {

constexpr int kEachFull = 6;  // without layer_types

// The blocks that attend to all rows: the last one too, whatever the list says, in transformers.
std::vector<bool> blocks_without_window(const ConfigReader& reader, int layers) {
  std::vector<bool> full;
  if (reader.has("layer_types")) {
    full = reader.kinds("layer_types", layers, "full_attention", "sliding_attention");
  } else {
    for (int layer = 1; layer <= layers; ++layer) full.push_back(layer % kEachFull == 0);
  }
  full.back() = true;
  return full;
}

void check_heads(const char* key, const Gemma4Config& config, int kv_heads) {
  if (config.heads % kv_heads == 0) return;
  ConfigReader::refuse(
      key, cat("expected a divisor of num_attention_heads ", config.heads, ", got ", kv_heads));
}

int read_head_dim(const ConfigReader& reader, const char* key, int otherwise, int heads) {
  const int size = reader.integer_or(key, 1, 1 << 14, otherwise);
  if (size % 2 != 0) reader.refuse(key, cat("expected pairs of channels, got ", size));
  if (int64_t{heads} * size > kMaxSize) {
    reader.refuse(key, cat("expected at most ", kMaxSize, " channels of all heads, got ",
                           int64_t{heads} * size));
  }
  return size;
}

void read_blocks(const ConfigReader& reader, Gemma4Config& config) {
  config.heads = reader.integer("num_attention_heads", 1, kMaxSize);
  config.kv_heads = reader.integer_or("num_key_value_heads", 1, kMaxSize, config.heads);
  check_heads("num_key_value_heads", config, config.kv_heads);
  config.head_dim = read_head_dim(reader, "head_dim", 256, config.heads);
  const int full_dim = read_head_dim(reader, "global_head_dim", 512, config.heads);
  const bool keys_are_values = reader.boolean_or("attention_k_eq_v", false);
  int full_heads = config.kv_heads;
  if (keys_are_values) {
    const char* const key = "num_global_key_value_heads";
    full_heads = reader.integer_or(key, 1, kMaxSize, config.kv_heads);
    check_heads(key, config, full_heads);
  }
  const int window = reader.integer_or("sliding_window", 1, 1 << 30, 512);
  const int shared = reader.integer_or("num_kv_shared_layers", 0, config.layers, 0);
  const bool wide = reader.boolean_or("use_double_wide_mlp", false);
  const std::vector<bool> full = blocks_without_window(reader, config.layers);
  const int first_shared = config.layers - shared;
  int last[2] = {-1, -1};  // the last own block of each kind
  for (int layer = 0; layer < config.layers; ++layer) {
    Gemma4Block& block = config.blocks.emplace_back();
    block.full = full[static_cast<size_t>(layer)];
    block.own = layer < first_shared;
    block.values = !(block.full && keys_are_values);
    if (block.own) last[block.full] = layer;
    block.source = last[block.full];
    if (block.source < 0) {
      reader.refuse("num_kv_shared_layers",
                    cat("expected a block of ", block.full ? "full" : "sliding",
                        "_attention among the first ", first_shared,
                        ", whose keys and values block ", layer, " shares, got none"));
    }
    block.kv_heads = block.full ? full_heads : config.kv_heads;
    block.head_dim = block.full ? full_dim : config.head_dim;
    block.inner = config.inner * (wide && !block.own ? 2 : 1);
    block.window = block.full ? 0 : window;
  }
}

void read_per_layer(const ConfigReader& reader, Gemma4Config& config) {
  const char* const key = "hidden_size_per_layer_input";
  config.per_layer = reader.integer_or(key, 0, kMaxSize, 256);
  if (config.per_layer == 0) return;
  if (int64_t{config.per_layer} * config.layers > kMaxSize) {
    reader.refuse(key, cat("expected at most ", kMaxSize, " channels of all blocks, got ",
                           int64_t{config.per_layer} * config.layers));
  }
  const int vocab = reader.integer_or("vocab_size_per_layer_input", 1, kMaxVocab, config.vocab);
  if (vocab == config.vocab) return;
  reader.refuse("vocab_size_per_layer_input",
                cat("expected vocab_size ", config.vocab, ", got ", vocab));
}

void read_ropes(const ConfigReader& reader, Gemma4Config& config) {
  if (!reader.has("rope_parameters")) {
    config.rope = {.type = RopeConfig::Type::kProportional, .theta = 1e6, .part = 0.25};
    return;
  }
  config.rope = read_rope(reader, "full_attention", config.max_positions, 1e6);
  config.window_rope = read_rope(reader, "sliding_attention", config.max_positions, 10000);
}

void refuse_others(const ConfigReader& reader) {
  if (reader.boolean_or("enable_moe_block", false)) {
    reader.refuse("enable_moe_block", "expected false: blocks have no experts here");
  }
  if (reader.boolean_or("attention_bias", false)) {
    reader.refuse("attention_bias", "expected false: products have no bias");
  }
  if (reader.text_or("use_bidirectional_attention", "") == "all") {
    reader.refuse("use_bidirectional_attention", "expected null: rows see those before them");
  }
  if (reader.has("per_layer_config")) {
    reader.refuse("per_layer_config", "expected none: full blocks' heads by global_head_dim");
  }
}

}  // namespace

Gemma4Config read_gemma4_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const Json* const inside = json.find("text_config");
  if (inside != nullptr && !inside->is_object()) {
    ConfigReader::refuse("text_config",
                         cat("expected an object, got ", ConfigReader::shown(*inside)));
  }
  const ConfigReader whole(json), reader(inside != nullptr ? *inside : json);
  refuse_others(reader);
  Gemma4Config config;
  config.model_type = whole.text_or("model_type", "");
  config.layers = reader.integer("num_hidden_layers", 1, 1024);
  config.channels = reader.integer("hidden_size", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.inner = reader.integer("intermediate_size", 1, kMaxSize / 2);
  config.max_positions = reader.integer("max_position_embeddings", 1, 1 << 24);
  config.context = served_context(config.max_positions, context);
  read_blocks(reader, config);
  read_per_layer(reader, config);
  read_ropes(reader, config);
  config.norm_eps = static_cast<float>(reader.number_or("rms_norm_eps", 1e-12, 1.0, 1e-6));
  config.activation = reader.activation_or("hidden_activation", "gelu_pytorch_tanh");
  config.logit_cap = static_cast<float>(reader.number_or("final_logit_softcapping", 1e-6, 1e6, 0));
  // The outer one, where there are two: transformers ties by it.
  config.tied_head =
      whole.boolean_or("tie_word_embeddings", reader.boolean_or("tie_word_embeddings", true));
  config.stops = whole.tokens("eos_token_id");
  if (config.stops.empty()) config.stops = reader.tokens("eos_token_id");
  if (!config.stops.empty()) config.end_of_text = config.stops[0];
  return config;
}

}  // namespace split
