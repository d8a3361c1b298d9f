#include "models/llama_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace split {
namespace {

using Windows = LlamaWindows;

constexpr LlamaTraits kLlamaTraits[] = {
    {.model_type = "llama"},
    {.model_type = "mistral"},
    {.model_type = "qwen2", .windows = Windows::kLast, .qkv_bias = true},
    {.model_type = "qwen3", .windows = Windows::kLast, .head_norms = true, .head_dim = 128},
    {.model_type = "gemma2",
     .windows = Windows::kEverySecond,
     .plus_one = true,
     .post_norms = true,
     .scaled_embedding = true,
     .caps = true,
     .tied_head = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256},
    {.model_type = "gemma3_text",
     .windows = Windows::kButEveryNth,
     .head_norms = true,
     .plus_one = true,
     .post_norms = true,
     .scaled_embedding = true,
     .caps = true,
     .tied_head = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256,
     .theta = 1e6},
    {.model_type = "modernbert",
     .windows = Windows::kButFirstOfN,
     .encodes = true,
     .modern_bert = true,
     .activation_key = "hidden_activation",
     .activation = "gelu",
     .theta = 160000}};

const LlamaTraits& traits_of(const ConfigReader& reader) {
  const std::string type = reader.text_or("model_type", "");
  const auto at = std::ranges::find(kLlamaTraits, type, &LlamaTraits::model_type);
  CHECK(at != std::end(kLlamaTraits));
  return *at;
}

// Whether block `layer` has a window, by layer_types or by the model type's pattern.
bool has_window(const ConfigReader& reader, const LlamaConfig& config, int layer) {
  if (reader.has("layer_types")) {
    const Json& types = reader["layer_types"];
    if (!types.is_array() || types.size() != static_cast<size_t>(config.layers)) {
      reader.refuse("layer_types", cat("expected a list of ", config.layers));
    }
    const Json& type = types[static_cast<size_t>(layer)];
    if (type == Json("sliding_attention")) return true;
    if (type == Json("full_attention")) return false;
    reader.refuse("layer_types", cat("expected \"full_attention\" or \"sliding_attention\", got ",
                                     ConfigReader::shown(type)));
  }
  switch (config.traits.windows) {
    case Windows::kAll:
      return true;
    case Windows::kLast:
      return layer >= reader.integer_or("max_window_layers", 0, kMaxSize, 28);
    case Windows::kEverySecond:
      return layer % 2 == 0;
    case Windows::kButFirstOfN:
      return layer % reader.integer_or("global_attn_every_n_layers", 1, kMaxSize, 3) != 0;
    case Windows::kButEveryNth:
      break;
  }
  const char* const key =
      reader.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  return (layer + 1) % reader.integer_or(key, 1, kMaxSize, 6) != 0;
}

std::vector<int> windows_of(const ConfigReader& reader, const LlamaConfig& config) {
  const bool off =
      config.traits.windows == Windows::kLast && !reader.boolean_or("use_sliding_window", false);
  const bool gemma = config.traits.windows >= Windows::kEverySecond;
  const bool modern = config.traits.modern_bert;
  const char* const key = modern ? "local_attention" : "sliding_window";
  const int usual = modern ? 128 : gemma ? 4096 : 0;
  int size = off ? 0 : reader.integer_or(key, 1, 1 << 30, usual);
  if (config.encodes()) size = size / 2 + 1;  // keys to either side, with its own row
  std::vector<int> all;
  for (int layer = 0; layer < config.layers; ++layer) {
    all.push_back(size > 0 && has_window(reader, config, layer) ? size : 0);
  }
  return all;
}

void read_heads(const ConfigReader& reader, LlamaConfig& config) {
  config.heads = reader.integer("num_attention_heads", 1, kMaxSize);
  config.kv_heads = reader.integer_or("num_key_value_heads", 1, kMaxSize, config.heads);
  if (config.heads % config.kv_heads != 0) {
    reader.refuse("num_key_value_heads", cat("expected a divisor of num_attention_heads ",
                                             config.heads, ", got ", config.kv_heads));
  }
  const int otherwise =
      config.traits.head_dim > 0 ? config.traits.head_dim : config.channels / config.heads;
  config.head_dim = reader.integer_or("head_dim", 1, 1 << 14, otherwise);
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    reader.refuse("head_dim", cat("expected pairs of channels, got ", config.head_dim));
  }
  if (int64_t{config.heads} * config.head_dim > kMaxSize) {
    reader.refuse("head_dim", cat("expected at most ", kMaxSize, " channels of all heads, got ",
                                  int64_t{config.heads} * config.head_dim));
  }
  const double scale = config.traits.caps || config.traits.post_norms
                           ? reader.number_or("query_pre_attn_scalar", 1e-6, 1e6, 256)
                           : config.head_dim;
  config.attention_scale = static_cast<float>(1 / std::sqrt(scale));
}

void read_ropes(const ConfigReader& reader, LlamaConfig& config) {
  const LlamaTraits& traits = config.traits;
  const double theta = traits.modern_bert
                           ? reader.number_or("global_rope_theta", 1, 1e12, traits.theta)
                           : traits.theta;
  config.rope = read_rope(reader, "full_attention", config.max_positions, theta);
  config.window_rope = config.rope;
  if (traits.windows < Windows::kButEveryNth) return;
  // Blocks with a window have a rope of their own.
  const bool kinds =
      reader.has("rope_parameters") && reader["rope_parameters"].contains("sliding_attention");
  const double local = reader.number_or(
      traits.modern_bert ? "local_rope_theta" : "rope_local_base_freq", 1, 1e12, 10000);
  if (kinds) {
    config.window_rope = read_rope(reader, "sliding_attention", config.max_positions, local);
  } else {
    if (!traits.modern_bert) config.window_rope = {};  // rope_scaling is of the others alone
    config.window_rope.theta = local;
  }
}

void check_factors(const RopeConfig& rope, int head_dim) {
  if (rope.type != RopeConfig::Type::kFactors) return;
  if (rope.factors.size() == static_cast<size_t>(head_dim) / 2) return;
  ConfigReader::refuse("rope_scaling.factors",
                       cat("expected ", head_dim / 2, ", got ", rope.factors.size()));
}

}  // namespace

std::span<const LlamaTraits> llama_traits() { return kLlamaTraits; }

LlamaConfig read_llama_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const ConfigReader reader(json);
  LlamaConfig config;
  config.traits = traits_of(reader);
  const LlamaTraits& traits = config.traits;
  config.model_type = traits.model_type;
  // The second name is in files from before transformers had the first.
  const bool both = reader.boolean_or("use_bidirectional_attention",
                                      reader.boolean_or("use_bidirectional_attn", false));
  if (both && traits.windows != Windows::kButEveryNth) {
    reader.refuse("use_bidirectional_attention", "expected false: rows see those before them");
  }
  if (both || traits.encodes) {
    config.kind = ModelKind::kEncoder;
    config.final_norm = true;
    config.ranks = traits.modern_bert && reader.ranks();
  }
  config.layers = reader.integer("num_hidden_layers", 1, 1024);
  config.channels = reader.integer("hidden_size", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.inner = reader.integer("intermediate_size", 1, kMaxSize);
  config.max_positions = reader.integer("max_position_embeddings", 1, 1 << 24);
  config.context = served_context(config.max_positions, context);
  read_heads(reader, config);
  const bool modern = traits.modern_bert;
  config.norm_eps = static_cast<float>(
      reader.number_or(modern ? "norm_eps" : "rms_norm_eps", 1e-12, 1.0, modern ? 1e-5 : 1e-6));
  for (const char* bias : {"attention_bias", "mlp_bias", "norm_bias"}) {
    if (modern && reader.boolean_or(bias, false)) {
      reader.refuse(bias, "expected false: a ModernBERT has none");
    }
  }
  const bool has_key = reader.has(traits.activation_key);
  config.activation =
      reader.activation_or(has_key ? traits.activation_key : "hidden_act", traits.activation);
  const bool bias = reader.boolean_or("attention_bias", false);
  config.qkv_bias = bias || traits.qkv_bias;
  config.out_bias = bias;
  config.mlp_bias = reader.boolean_or("mlp_bias", false);
  config.tied_head = reader.boolean_or("tie_word_embeddings", traits.tied_head);
  if (traits.caps) {
    config.score_cap = static_cast<float>(reader.number_or("attn_logit_softcapping", 1e-6, 1e6, 0));
    config.logit_cap =
        static_cast<float>(reader.number_or("final_logit_softcapping", 1e-6, 1e6, 0));
  }
  config.windows = windows_of(reader, config);
  read_ropes(reader, config);
  check_factors(config.rope, config.head_dim);
  check_factors(config.window_rope, config.head_dim);
  config.stops = reader.tokens("eos_token_id");
  if (!config.stops.empty()) config.end_of_text = config.stops[0];
  return config;
}

}  // namespace split
