// Settings of GGUF files as config.json has them.
#include <algorithm>

#include "io/gguf_architectures.h"

namespace split {
namespace {

constexpr uint64_t kMaxSize = kGgufMaxSize;

// Restores the written float: 1e-5, not the double nearest to the float.
Json as_written(double value) { return std::stod(cat(static_cast<float>(value))); }

// Reads keys with the architecture's prefix.
class Keys {
 public:
  Keys(const Gguf& file, const GgufArchitecture& architecture)
      : file_(file), prefix_(cat(architecture.name, ".")) {}
  bool has(std::string_view key) const { return file_.has(prefix_ + std::string(key)); }
  uint64_t size(std::string_view key, uint64_t most = kMaxSize) const {
    return file_.integer(prefix_ + std::string(key), 1, most);
  }
  uint64_t size_or(std::string_view key, uint64_t otherwise) const {
    return has(key) ? size(key) : otherwise;
  }
  Json number(std::string_view key, double low, double high) const {
    return as_written(file_.number(prefix_ + std::string(key), low, high));
  }
  std::string_view text(std::string_view key) const {
    return file_.text(prefix_ + std::string(key));
  }
  const Gguf& file() const { return file_; }

 private:
  const Gguf& file_;
  const std::string prefix_;
};

uint64_t heads_of(const Keys& keys) { return keys.size("attention.head_count"); }
uint64_t head_dim_of(const Keys& keys) {
  return keys.size_or("attention.key_length",
                      std::max<uint64_t>(1, keys.size("embedding_length") / heads_of(keys)));
}

Json gpt2_config(const Keys& keys, bool own_head) {
  return {{"model_type", "gpt2"},
          {"architectures", Json::array({"GPT2LMHeadModel"})},
          {"n_layer", keys.size("block_count")},
          {"n_embd", keys.size("embedding_length")},
          {"n_head", keys.size("attention.head_count")},
          {"n_positions", keys.size("context_length")},
          {"n_ctx", keys.size("context_length")},
          {"n_inner", keys.size("feed_forward_length")},
          {"layer_norm_epsilon", keys.number("attention.layer_norm_epsilon", 1e-12, 1)},
          {"activation_function", "gelu_new"},  // llama.cpp's GPT-2 has this one
          {"tie_word_embeddings", !own_head}};
}

Json bert_config(const Keys& keys) {
  constexpr const char* kTypes = "token_types.weight";
  const auto types = keys.file().tensors().find(kTypes);
  if (types == keys.file().tensors().end()) keys.file().refuse(cat("no tensor '", kTypes, "'"));
  return {{"model_type", "bert"},
          {"num_hidden_layers", keys.size("block_count")},
          {"hidden_size", keys.size("embedding_length")},
          {"num_attention_heads", keys.size("attention.head_count")},
          {"intermediate_size", keys.size("feed_forward_length")},
          {"max_position_embeddings", keys.size("context_length")},
          {"type_vocab_size", types->second.dims[0]},
          {"layer_norm_eps", keys.number("attention.layer_norm_epsilon", 1e-15, 1)},
          {"hidden_act", "gelu"}};
}

Json modern_bert_config(const Keys& keys) {
  const auto theta = [&](const char* key, double usual) {
    return keys.has(key) ? keys.number(key, 1, 1e12) : Json(usual);
  };
  return {{"model_type", "modernbert"},
          {"num_hidden_layers", keys.size("block_count")},
          {"hidden_size", keys.size("embedding_length")},
          {"num_attention_heads", keys.size("attention.head_count")},
          {"intermediate_size", keys.size("feed_forward_length")},
          {"max_position_embeddings", keys.size("context_length")},
          {"norm_eps", keys.number("attention.layer_norm_epsilon", 1e-12, 1)},
          {"local_attention", keys.size_or("attention.sliding_window", 128)},
          {"global_attn_every_n_layers", keys.size_or("attention.sliding_window_pattern", 3)},
          {"global_rope_theta", theta("rope.freq_base", 160000)},
          {"local_rope_theta", theta("rope.freq_base_swa", 10000)}};
}

Json rope_parameters(const Keys& keys, double theta) {
  Json rope = {{"rope_theta",
                keys.has("rope.freq_base") ? keys.number("rope.freq_base", 1, 1e12) : Json(theta)}};
  const auto& tensors = keys.file().tensors();
  if (const auto factors = tensors.find(kGgufRopeFactors); factors != tensors.end()) {
    const GgufTensor& tensor = factors->second;
    const uint64_t count = head_dim_of(keys) / 2;
    if (tensor.type != GgmlType::kF32 || tensor.dims != Dims{static_cast<int64_t>(count)}) {
      keys.file().refuse(cat(kGgufRopeFactors, ": expected ", count, " floats"));
    }
    std::vector<float> values(count);
    gguf_floats(tensor, 0, values.size(), values.data());
    rope["rope_type"] = "factors";
    Json all = Json::array();
    for (const float value : values) all.push_back(double{value});
    rope["factors"] = std::move(all);
    return rope;
  }
  const std::string_view type =
      keys.has("rope.scaling.type") ? keys.text("rope.scaling.type") : "none";
  const bool factor = keys.has("rope.scaling.factor");
  if (type == "none" && !factor) return rope;
  rope["rope_type"] = type == "none" ? "linear" : type;
  if (factor) rope["factor"] = keys.number("rope.scaling.factor", 1e-6, 1e6);
  if (keys.has("rope.scaling.original_context_length")) {
    rope["original_max_position_embeddings"] =
        keys.size("rope.scaling.original_context_length", 1 << 24);
  }
  for (const auto& [key, ours] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                  std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
    if (keys.has(key)) rope[ours] = keys.number(key, 1e-6, 1e6);
  }
  return rope;
}

// Returns the number by whose root llama.cpp divides scores.
uint64_t gemma_score_divisor(const Keys& keys, uint64_t blocks_of_27b) {
  return keys.size("block_count") == blocks_of_27b ? keys.size("embedding_length") / heads_of(keys)
                                                   : head_dim_of(keys);
}

void add_gemma(const Keys& keys, bool third, Json& config) {
  config["query_pre_attn_scalar"] = gemma_score_divisor(keys, third ? 62 : 46);
  config["sliding_window"] = keys.size_or("attention.sliding_window", third ? 1024 : 4096);
  for (const auto& [key, ours] :
       {std::pair{"attn_logit_softcapping", "attn_logit_softcapping"},
        std::pair{"final_logit_softcapping", "final_logit_softcapping"}}) {
    if (keys.has(key)) config[ours] = keys.number(key, 1e-6, 1e6);
  }
  if (!third) return;
  if (keys.has("attention.sliding_window_pattern")) {
    config["sliding_window_pattern"] = keys.size("attention.sliding_window_pattern");
  }
  const Json local =
      keys.has("rope.freq_base_swa") ? keys.number("rope.freq_base_swa", 1, 1e12) : Json(10000.0);
  config["rope_parameters"] = {{"full_attention", rope_parameters(keys, 1e6)},
                               {"sliding_attention", {{"rope_theta", local}}}};
}

Json llama_config(const Keys& keys, const GgufArchitecture& architecture, bool own_head) {
  const uint64_t heads = heads_of(keys), head_dim = head_dim_of(keys);
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    if (keys.size_or(key, head_dim) == head_dim) continue;
    keys.file().refuse(
        cat(architecture.name, ".", key, ": expected ", head_dim, ", got ", keys.size(key)));
  }
  if (keys.has("expert_count") &&
      keys.file().integer(cat(architecture.name, ".expert_count"), 0, kMaxSize) > 0) {
    keys.file().refuse(cat(architecture.name, ".expert_count: expected none"));
  }
  const bool third = architecture.norms_plus_one && architecture.name != "gemma2";
  const auto& tensors = keys.file().tensors();
  Json config = {
      {"model_type", third ? std::string("gemma3_text") : std::string(architecture.name)},
      {"num_hidden_layers", keys.size("block_count")},
      {"hidden_size", keys.size("embedding_length")},
      {"intermediate_size", keys.size("feed_forward_length")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", keys.size_or("attention.head_count_kv", heads)},
      {"head_dim", head_dim},
      {"max_position_embeddings", keys.size("context_length", 1 << 24)},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1)},
      {"tie_word_embeddings", !own_head},
      {"rope_parameters", rope_parameters(keys, 10000)}};
  if (architecture.turned_heads && tensors.contains("blk.0.attn_q.bias")) {
    config["attention_bias"] = true;
  }
  if (architecture.norms_plus_one) add_gemma(keys, third, config);
  if (architecture.encodes) config["use_bidirectional_attention"] = true;
  return config;
}

}  // namespace

Json gguf_config(const Gguf& file, const GgufArchitecture& architecture, bool own_head) {
  const auto embedding = file.tensors().find("token_embd.weight");
  if (embedding == file.tensors().end()) file.refuse("no tensor 'token_embd.weight'");
  const Keys keys(file, architecture);
  Json config = architecture.is_gpt2()          ? gpt2_config(keys, own_head)
                : architecture.is_bert()        ? bert_config(keys)
                : architecture.is_modern_bert() ? modern_bert_config(keys)
                                                : llama_config(keys, architecture, own_head);
  config["vocab_size"] = embedding->second.dims[0];
  for (const auto& [key, ours] : {std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                  std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"}}) {
    if (file.has(key)) config[ours] = file.integer(key, 0, (1 << 24) - 1);
  }
  return config;
}

uint64_t turned_heads(const Gguf& file, const GgufArchitecture& architecture,
                      std::string_view name) {
  if (!architecture.turned_heads) return 0;
  const Keys keys(file, architecture);
  const uint64_t heads = heads_of(keys);
  if (name.find(".q_proj.") != name.npos) return heads;
  if (name.find(".k_proj.") != name.npos) return keys.size_or("attention.head_count_kv", heads);
  return 0;
}

std::string_view gguf_pooling(const Gguf& file, const GgufArchitecture& architecture) {
  const std::string key = cat(architecture.name, ".pooling_type");
  if (!architecture.encodes || !file.has(key)) return "";
  switch (file.integer(key, 0, 4)) {
    case 0:  // no pooling: the reader pools
    case 1:
      return "mean";
    case 2:
      return "cls";
    case 3:
      return "lasttoken";
    default:
      file.refuse(cat(key, ": expected 0..3: a reranker is none that is read here"));
  }
}

}  // namespace split
