// Settings of GGUF files as config.json has them.
#include <algorithm>
#include <cmath>

#include "io/gguf_architectures.h"

namespace split {
namespace {

constexpr uint64_t kMaxSize = kGgufMaxSize;
constexpr uint64_t kMaxBlocks = 1024;  // models/qwen35_config.cpp's, for lists by block

// Restores the written float: 1e-5, not the double nearest to the float.
Json as_written(double value) { return std::stod(cat(static_cast<float>(value))); }

// Reads keys with the architecture's prefix.
class Keys {
 public:
  Keys(const Gguf& file, const GgufArchitecture& architecture)
      : file_(file), prefix_(cat(architecture.name, ".")) {}
  bool has(std::string_view key) const { return file_.has(prefix_ + std::string(key)); }
  uint64_t size(std::string_view key, uint64_t most = kMaxSize, uint64_t least = 1) const {
    return file_.integer(prefix_ + std::string(key), least, most);
  }
  uint64_t size_or(std::string_view key, uint64_t otherwise, uint64_t least = 1) const {
    return has(key) ? size(key, kMaxSize, least) : otherwise;
  }
  Json number(std::string_view key, double low, double high) const {
    return as_written(file_.number(prefix_ + std::string(key), low, high));
  }
  std::string_view text(std::string_view key) const {
    return file_.text(prefix_ + std::string(key));
  }
  // A number of each block, in a list or one for all.
  std::vector<uint64_t> sizes(std::string_view key, uint64_t blocks) const {
    const std::string name = prefix_ + std::string(key);
    if (!file_.is_list(name)) return std::vector<uint64_t>(blocks, size(key));
    const std::vector<int32_t> list = file_.integers(name, kMaxSize);
    expect_blocks(key, list.size(), blocks);
    for (const int32_t number : list) {
      if (number < 1 || static_cast<uint64_t>(number) > kMaxSize) {
        refuse(key, cat("numbers in 1..", kMaxSize), cat(number));
      }
    }
    return {list.begin(), list.end()};
  }
  std::vector<bool> flags(std::string_view key, uint64_t blocks) const {
    std::vector<bool> list = file_.flags(prefix_ + std::string(key), kMaxSize);
    expect_blocks(key, list.size(), blocks);
    return list;
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& expected,
                           const std::string& got) const {
    file_.refuse(cat(prefix_, key, ": expected ", expected, ", got ", got));
  }
  // Throws unless a key that files may have is this number.
  void expect(std::string_view key, uint64_t number) const {
    if (size_or(key, number) != number) refuse(key, cat(number), cat(size(key)));
  }
  // Throws if the blocks have experts.
  void refuse_experts() const {
    if (has("expert_count") && file_.integer(prefix_ + "expert_count", 0, kMaxSize) > 0) {
      file_.refuse(cat(prefix_, "expert_count: expected none"));
    }
  }
  const Gguf& file() const { return file_; }

 private:
  void expect_blocks(std::string_view key, uint64_t count, uint64_t blocks) const {
    if (count != blocks) refuse(key, cat("a list of ", blocks), cat("one of ", count));
  }

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

// Divisors of a rope's frequencies; empty if the file has none.
std::vector<float> rope_factors(const Keys& keys, uint64_t count) {
  const auto& tensors = keys.file().tensors();
  const auto factors = tensors.find(kGgufRopeFactors);
  if (factors == tensors.end()) return {};
  const GgufTensor& tensor = factors->second;
  if (tensor.type != GgmlType::kF32 || tensor.dims != Dims{static_cast<int64_t>(count)}) {
    keys.file().refuse(cat(kGgufRopeFactors, ": expected ", count, " floats"));
  }
  std::vector<float> values(count);
  gguf_floats(tensor, 0, values.size(), values.data());
  return values;
}

Json rope_parameters(const Keys& keys, double theta) {
  Json rope = {{"rope_theta",
                keys.has("rope.freq_base") ? keys.number("rope.freq_base", 1, 1e12) : Json(theta)}};
  const std::vector<float> factors = rope_factors(keys, head_dim_of(keys) / 2);
  if (!factors.empty()) {
    rope["rope_type"] = "factors";
    Json all = Json::array();
    for (const float value : factors) all.push_back(double{value});
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
    keys.expect(key, head_dim);
  }
  keys.refuse_experts();
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

// Blocks behind the model's, which draft tokens.
uint64_t draft_blocks(const Keys& keys) {
  constexpr const char* kDrafts = "nextn_predict_layers";
  if (!keys.has(kDrafts)) return 0;
  const uint64_t blocks = keys.size("block_count"), drafts = keys.size(kDrafts, kMaxSize, 0);
  if (drafts >= blocks) keys.refuse(kDrafts, cat("fewer than ", blocks, " blocks"), cat(drafts));
  return drafts;
}

// Returns the share of which a reader that rounds down makes `part` of `of` again.
double share(uint64_t part, uint64_t of) {
  const auto whole = static_cast<double>(of), number = static_cast<double>(part);
  double share = number / whole;
  while (share * whole < number) share = std::nextafter(share, 2.0);
  return share;
}

// Whether a block attends to all rows, by block.
std::vector<bool> full_blocks(const Keys& keys, uint64_t layers, uint64_t drafts) {
  constexpr const char *kRecurrent = "attention.recurrent_layers",
                       *kInterval = "full_attention_interval";
  const bool listed = keys.has(kRecurrent);
  std::vector<bool> full;
  if (listed) {
    full = keys.flags(kRecurrent, layers + drafts);
    full.resize(layers);
    full.flip();
  } else {
    const uint64_t each = keys.size_or(kInterval, 4);
    for (uint64_t block = 1; block <= layers; ++block) full.push_back(block % each == 0);
  }
  if (std::ranges::find(full, true) == full.end()) {
    keys.refuse(listed ? kRecurrent : kInterval, cat("a block of full attention among ", layers),
                "none");
  }
  return full;
}

Json qwen35_config(const Keys& keys, bool own_head) {
  keys.refuse_experts();
  const uint64_t drafts = draft_blocks(keys),
                 layers = keys.size("block_count", kMaxBlocks) - drafts,
                 head_dim = head_dim_of(keys), key_heads = keys.size("ssm.group_count"),
                 value_heads = keys.size("ssm.time_step_rank"), inner = keys.size("ssm.inner_size");
  keys.expect("attention.value_length", head_dim);
  if (inner % value_heads != 0) {
    keys.refuse("ssm.inner_size", cat("a multiple of ", value_heads, " heads"), cat(inner));
  }
  // Where several value heads share a key head, converters put these in rounds.
  const char* const linear =
      key_heads == value_heads ? "linear_attention" : "tiled_linear_attention";
  Json types = Json::array();
  for (const bool full : full_blocks(keys, layers, drafts)) {
    types.push_back(full ? "full_attention" : linear);
  }
  const uint64_t turned = keys.size_or("rope.dimension_count", head_dim);
  if (turned > head_dim) {
    keys.refuse("rope.dimension_count", cat("at most ", head_dim), cat(turned));
  }
  Json rope = rope_parameters(keys, 1e7);
  rope["partial_rotary_factor"] = share(turned, head_dim);
  return {{"model_type", "qwen3_5_text"},
          {"num_hidden_layers", layers},
          {"hidden_size", keys.size("embedding_length")},
          {"intermediate_size", keys.size("feed_forward_length")},
          {"num_attention_heads", heads_of(keys)},
          {"num_key_value_heads", keys.size_or("attention.head_count_kv", heads_of(keys))},
          {"head_dim", head_dim},
          {"layer_types", std::move(types)},
          {"linear_num_key_heads", key_heads},
          {"linear_num_value_heads", value_heads},
          {"linear_key_head_dim", keys.size("ssm.state_size")},
          {"linear_value_head_dim", inner / value_heads},
          {"linear_conv_kernel_dim", keys.size("ssm.conv_kernel")},
          {"max_position_embeddings", keys.size("context_length", 1 << 24)},
          {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1)},
          {"tie_word_embeddings", !own_head},
          {"rope_parameters", std::move(rope)}};
}

// The rope of Gemma 4's full blocks: leading pairs turn, the others' frequencies are divided by so
// much that they stand still.
Json proportional_rope(const Keys& keys, uint64_t head_dim) {
  constexpr float kStill = 1e30f;
  constexpr const char* kScaling = "rope.scaling.type";
  if (keys.has(kScaling) && keys.text(kScaling) != "none") {
    keys.refuse(kScaling, "none", shown(keys.text(kScaling)));
  }
  const std::vector<float> factors = rope_factors(keys, head_dim / 2);
  const auto turned = std::ranges::find(factors, kStill);
  if (factors.empty() || !std::all_of(factors.begin(), turned, [](float x) { return x == 1; }) ||
      !std::all_of(turned, factors.end(), [](float x) { return x == kStill; })) {
    keys.file().refuse(
        cat(kGgufRopeFactors, ": expected ", head_dim / 2, " factors, ones and then 1e30"));
  }
  return {{"rope_type", "proportional"},
          {"rope_theta", keys.number("rope.freq_base", 1, 1e12)},
          {"partial_rotary_factor",
           share(static_cast<uint64_t>(turned - factors.begin()), factors.size())}};
}

Json gemma4_config(const Keys& keys, bool own_head) {
  keys.refuse_experts();
  const uint64_t layers = keys.size("block_count", kMaxBlocks),
                 head_dim = keys.size("attention.key_length"),
                 window_dim = keys.size("attention.key_length_swa"),
                 shared = keys.size_or("attention.shared_kv_layers", 0, 0);
  keys.expect("attention.value_length", head_dim);
  keys.expect("attention.value_length_swa", window_dim);
  keys.expect("rope.dimension_count", head_dim);
  keys.expect("rope.dimension_count_swa", window_dim);
  if (shared >= layers) {
    keys.refuse("attention.shared_kv_layers", cat("fewer than ", layers, " blocks"), cat(shared));
  }
  constexpr const char *kHeads = "attention.head_count_kv", *kInner = "feed_forward_length";
  const std::vector<bool> window = keys.flags("attention.sliding_window_pattern", layers);
  const std::vector<uint64_t> kv_heads = keys.sizes(kHeads, layers),
                              inners = keys.sizes(kInner, layers);
  // Those with a window and full ones; those with own keys and with shared ones.
  uint64_t heads[2] = {}, inner[2] = {};
  bool keys_are_values = false;  // where a full block has no product for values
  Json types = Json::array();
  const auto keep = [&](const char* key, uint64_t& one, size_t block, uint64_t size) {
    if (one != 0 && one != size) keys.refuse(key, cat(one, " in block ", block), cat(size));
    one = size;
  };
  for (size_t block = 0; block < layers; ++block) {
    const bool full = !window[block], shares = block >= layers - shared;
    keep(kHeads, heads[full], block, kv_heads[block]);
    keep(kInner, inner[shares], block, inners[block]);
    types.push_back(full ? "full_attention" : "sliding_attention");
    keys_are_values |=
        full && !shares && !keys.file().tensors().contains(cat("blk.", block, ".attn_v.weight"));
  }
  for (size_t kind = 0; kind < 2; ++kind) heads[kind] = heads[kind] ? heads[kind] : heads[1 - kind];
  if (shared > 0 && inner[1] != inner[0] && inner[1] != 2 * inner[0]) {
    keys.refuse(kInner, cat(inner[0], " or twice that in the last ", shared, " blocks"),
                cat(inner[1]));
  }
  if (!keys_are_values && heads[1] != heads[0]) {
    keys.refuse(kHeads, cat(heads[0], " in full blocks with values of their own"), cat(heads[1]));
  }
  Json config = {
      {"model_type", "gemma4_text"},
      {"num_hidden_layers", layers},
      {"hidden_size", keys.size("embedding_length")},
      {"intermediate_size", inner[0]},
      {"use_double_wide_mlp", shared > 0 && inner[1] != inner[0]},
      {"num_attention_heads", heads_of(keys)},
      {"num_key_value_heads", heads[0]},
      {"num_global_key_value_heads", heads[1]},
      {"attention_k_eq_v", keys_are_values},
      {"head_dim", window_dim},
      {"global_head_dim", head_dim},
      {"layer_types", std::move(types)},
      {"num_kv_shared_layers", shared},
      {"sliding_window", keys.size("attention.sliding_window")},
      {"hidden_size_per_layer_input", keys.size_or("embedding_length_per_layer_input", 0, 0)},
      {"max_position_embeddings", keys.size("context_length", 1 << 24)},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1)},
      {"tie_word_embeddings", !own_head}};
  constexpr const char *kCap = "final_logit_softcapping", *kLocal = "rope.freq_base_swa";
  if (keys.has(kCap)) config[kCap] = keys.number(kCap, 1e-6, 1e6);
  config["rope_parameters"] = {
      {"full_attention", proportional_rope(keys, head_dim)},
      {"sliding_attention",
       {{"rope_theta", keys.has(kLocal) ? keys.number(kLocal, 1, 1e12) : Json(10000.0)}}}};
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
                : architecture.name == "qwen35" ? qwen35_config(keys, own_head)
                : architecture.name == "gemma4" ? gemma4_config(keys, own_head)
                                                : llama_config(keys, architecture, own_head);
  config["vocab_size"] = embedding->second.dims[0];
  for (const auto& [key, ours] : {std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                  std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"}}) {
    if (file.has(key)) config[ours] = file.integer(key, 0, (1 << 24) - 1);
  }
  return config;
}

bool gguf_drafts(const Gguf& file, const GgufArchitecture& architecture, uint64_t block) {
  const Keys keys(file, architecture);
  const uint64_t drafts = draft_blocks(keys);
  if (drafts == 0) return false;
  const uint64_t blocks = keys.size("block_count");
  return block < blocks && block >= blocks - drafts;
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
