// Qwen3.5 and Gemma 4 as llama.cpp's converter writes them, of Hugging Face's names and settings:
// its names of tensors and keys, norms, decays and orders of heads.
#pragma once

#include <functional>
#include <random>

#include "base/json.h"
#include "io/checkpoint.h"
#include "models/model.h"
#include "support/gguf/file.h"
#include "support/golden_model.h"

namespace split::test {

struct FloatTensor {
  Dims dims;
  std::vector<float> values;
};
// By names without a prefix.
using FloatTensors = std::map<std::string, FloatTensor>;
// The type of a matrix in a file, by its name there.
using TypeOf = std::function<GgmlType(const std::string& name)>;

// Adds a tensor: vectors, and rows that are no whole blocks, as llama.cpp has them.
inline void add_tensor(GgufFile& file, const std::string& name, const FloatTensor& tensor,
                       const TypeOf& type) {
  const bool floats = tensor.dims.size() == 1 || name.find("ssm_conv1d") != name.npos;
  const GgmlType asked = floats ? GgmlType::kF32 : type(name);
  const bool whole = static_cast<uint64_t>(tensor.dims.back()) % ggml_block(asked).elements == 0;
  file.tensor(name, tensor.dims, tensor.values, whole ? asked : GgmlType::kF16);
}

inline FloatTensors floats_of(const Checkpoint& checkpoint) {
  FloatTensors all;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    FloatTensor& to = all[name];
    to.dims = view.dims;
    to.values.resize(static_cast<size_t>(*element_count(view.dims)));
    convert(view, DType::kF32, std::as_writable_bytes(std::span(to.values)));
  }
  return all;
}

// Puts heads of `each` rows, of which `share` ones in a row share a key head, in rounds: the first
// one of each key head, then the second ones.
inline void tile(FloatTensor& of, size_t first, size_t key_heads, size_t share, size_t each) {
  const size_t rows = static_cast<size_t>(of.dims[0]), width = of.values.size() / rows;
  const std::vector<float> before = of.values;
  for (size_t k = 0; k < key_heads; ++k) {
    for (size_t n = 0; n < share; ++n) {
      std::copy_n(&before[(first + (k * share + n) * each) * width], each * width,
                  &of.values[(first + (n * key_heads + k) * each) * width]);
    }
  }
}
inline FloatTensor transposed(const FloatTensor& of) {
  FloatTensor out{{of.dims[1], of.dims[0]}, std::vector<float>(of.values.size())};
  const auto rows = static_cast<size_t>(of.dims[0]), width = static_cast<size_t>(of.dims[1]);
  for (size_t i = 0; i < of.values.size(); ++i) {
    out.values[i % width * rows + i / width] = of.values[i];
  }
  return out;
}

using NameMap = std::vector<std::pair<std::string, std::string>>;
// "layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"
inline std::string gguf_name(const std::string& name, const NameMap& outside,
                             const NameMap& in_block) {
  const auto found = [&](const NameMap& names, const std::string& ours) -> std::string {
    const auto at = std::ranges::find(names, ours, &NameMap::value_type::first);
    CHECK(at != names.end());
    return at->second;
  };
  if (!name.starts_with("layers.")) return found(outside, name);
  const size_t dot = name.find('.', 7);
  return cat("blk.", name.substr(7, dot - 7), ".", found(in_block, name.substr(dot + 1)));
}

inline std::string qwen35_gguf_name(const std::string& name) {
  static const NameMap outside = {{"embed_tokens.weight", "token_embd.weight"},
                                  {"norm.weight", "output_norm.weight"},
                                  {"lm_head.weight", "output.weight"}};
  static const NameMap in_block = {
      {"input_layernorm.weight", "attn_norm.weight"},
      {"post_attention_layernorm.weight", "post_attention_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
      {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
      {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
      {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
      {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
      {"linear_attn.A_log", "ssm_a"},
      {"linear_attn.dt_bias", "ssm_dt.bias"},
      {"linear_attn.norm.weight", "ssm_norm.weight"},
      {"linear_attn.out_proj.weight", "ssm_out.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"}};
  return gguf_name(name, outside, in_block);
}

// `config`: flat, or what is in text_config.
inline GgufFile gguf_qwen35(const Json& config, FloatTensors tensors, const TypeOf& type) {
  const auto size = [&](const char* key) { return config[key].get<uint64_t>(); };
  GgufFile file;
  file.text("general.architecture", "qwen35");
  for (const auto& [key, ours] : std::initializer_list<std::pair<const char*, const char*>>{
           {"block_count", "num_hidden_layers"},
           {"context_length", "max_position_embeddings"},
           {"embedding_length", "hidden_size"},
           {"feed_forward_length", "intermediate_size"},
           {"attention.head_count", "num_attention_heads"},
           {"attention.head_count_kv", "num_key_value_heads"},
           {"attention.key_length", "head_dim"},
           {"attention.value_length", "head_dim"},
           {"ssm.conv_kernel", "linear_conv_kernel_dim"},
           {"ssm.state_size", "linear_key_head_dim"},
           {"ssm.group_count", "linear_num_key_heads"},
           {"ssm.time_step_rank", "linear_num_value_heads"}}) {
    file.integer(cat("qwen35.", key), size(ours));
  }
  const size_t key_heads = size("linear_num_key_heads"), dim = size("linear_value_head_dim"),
               share = size("linear_num_value_heads") / key_heads,
               queries = 2 * key_heads * size("linear_key_head_dim");
  file.integer("qwen35.ssm.inner_size", dim * key_heads * share);
  file.integer("qwen35.rope.dimension_count", size("head_dim") / 4);
  file.numbers("qwen35.rope.dimension_sections", 5, std::vector<int32_t>{11, 11, 10, 0});
  file.real("qwen35.rope.freq_base", 1e7);
  file.real("qwen35.attention.layer_norm_rms_epsilon", 1e-6);
  std::vector<bool> recurrent;
  for (const Json& kind : config["layer_types"])
    recurrent.push_back(kind != Json("full_attention"));
  file.flags("qwen35.attention.recurrent_layers", recurrent);
  file.integer("tokenizer.ggml.eos_token_id", size("eos_token_id"));
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight")) {
      for (float& value : tensor.values) value += 1;
    }
    if (name.ends_with("A_log")) {
      for (float& value : tensor.values) value = -std::exp(value);
    }
    if (name.ends_with("conv1d.weight")) tensor.dims = {tensor.dims[0], tensor.dims[2]};
    if (name.ends_with("in_proj_qkv.weight") || name.ends_with("conv1d.weight")) {
      tile(tensor, queries, key_heads, share, dim);
    } else if (name.ends_with("in_proj_z.weight")) {
      tile(tensor, 0, key_heads, share, dim);
    } else if (name.ends_with("out_proj.weight")) {
      FloatTensor columns = transposed(tensor);
      tile(columns, 0, key_heads, share, dim);
      tensor = transposed(columns);
    } else if (name.ends_with("in_proj_a.weight") || name.ends_with("in_proj_b.weight") ||
               name.ends_with("A_log") || name.ends_with("dt_bias")) {
      tile(tensor, 0, key_heads, share, 1);
    }
    add_tensor(file, qwen35_gguf_name(name), tensor, type);
  }
  return file;
}

inline GgufFile gguf_gemma4(const Json& config, FloatTensors tensors, const TypeOf& type) {
  const auto size = [&](const char* key) { return config[key].get<uint64_t>(); };
  GgufFile file;
  file.text("general.architecture", "gemma4");
  for (const auto& [key, ours] : std::initializer_list<std::pair<const char*, const char*>>{
           {"block_count", "num_hidden_layers"},
           {"context_length", "max_position_embeddings"},
           {"embedding_length", "hidden_size"},
           {"attention.head_count", "num_attention_heads"},
           {"attention.key_length", "global_head_dim"},
           {"attention.value_length", "global_head_dim"},
           {"attention.key_length_swa", "head_dim"},
           {"attention.value_length_swa", "head_dim"},
           {"rope.dimension_count", "global_head_dim"},
           {"rope.dimension_count_swa", "head_dim"},
           {"attention.sliding_window", "sliding_window"},
           {"attention.shared_kv_layers", "num_kv_shared_layers"},
           {"embedding_length_per_layer_input", "hidden_size_per_layer_input"}}) {
    file.integer(cat("gemma4.", key), size(ours));
  }
  file.real("gemma4.rope.freq_base", 1e6);
  file.real("gemma4.rope.freq_base_swa", 1e4);
  file.real("gemma4.attention.layer_norm_rms_epsilon", 1e-6);
  file.real("gemma4.final_logit_softcapping", config["final_logit_softcapping"].get<double>());
  const size_t layers = size("num_hidden_layers"), own = layers - size("num_kv_shared_layers"),
               pairs = size("global_head_dim") / 2;
  std::vector<bool> window;
  std::vector<int32_t> inner, kv_heads;
  for (size_t i = 0; i < layers; ++i) {
    window.push_back(config["layer_types"][i] == Json("sliding_attention"));
    const bool wide = i >= own && config["use_double_wide_mlp"].get<bool>();
    inner.push_back(static_cast<int32_t>(size("intermediate_size")) * (wide ? 2 : 1));
    const bool global = !window.back() && !config["num_global_key_value_heads"].is_null();
    kv_heads.push_back(
        static_cast<int32_t>(size(global ? "num_global_key_value_heads" : "num_key_value_heads")));
  }
  file.flags("gemma4.attention.sliding_window_pattern", window);
  file.numbers("gemma4.feed_forward_length", 5, inner);
  file.numbers("gemma4.attention.head_count_kv", 5, kv_heads);
  file.integer("tokenizer.ggml.eos_token_id", size("eos_token_id"));
  std::vector<float> factors(pairs, 1e30f);
  std::fill_n(factors.begin(), pairs / 4, 1.0f);
  file.tensor("rope_freqs.weight", {static_cast<int64_t>(pairs)}, factors);
  const NameMap outside = {{"embed_tokens.weight", "token_embd.weight"},
                           {"norm.weight", "output_norm.weight"},
                           {"lm_head.weight", "output.weight"},
                           {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
                           {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
                           {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
  const NameMap in_block = {{"input_layernorm.weight", "attn_norm.weight"},
                            {"post_attention_layernorm.weight", "post_attention_norm.weight"},
                            {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                            {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                            {"self_attn.q_proj.weight", "attn_q.weight"},
                            {"self_attn.k_proj.weight", "attn_k.weight"},
                            {"self_attn.v_proj.weight", "attn_v.weight"},
                            {"self_attn.o_proj.weight", "attn_output.weight"},
                            {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                            {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                            {"mlp.gate_proj.weight", "ffn_gate.weight"},
                            {"mlp.up_proj.weight", "ffn_up.weight"},
                            {"mlp.down_proj.weight", "ffn_down.weight"},
                            {"per_layer_input_gate.weight", "inp_gate.weight"},
                            {"per_layer_projection.weight", "proj.weight"},
                            {"post_per_layer_input_norm.weight", "post_norm.weight"},
                            {"layer_scalar", "layer_output_scale.weight"}};
  for (const auto& [name, tensor] : tensors) {
    add_tensor(file, gguf_name(name, outside, in_block), tensor, type);
  }
  return file;
}

// Settings of models whose rows are whole blocks of 256 columns, which goldens' are not.
inline const char* const kWideQwen35 =
    R"({"num_hidden_layers": 4, "hidden_size": 256, "vocab_size": 320,
    "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 8, "linear_key_head_dim": 24,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "max_position_embeddings": 400,
    "rms_norm_eps": 1e-6, "eos_token_id": 7, "tie_word_embeddings": true,
    "model_type": "qwen3_5_text", "rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
    "partial_rotary_factor": 0.25}})";
inline const char* const kWideGemma4 =
    R"({"num_hidden_layers": 4, "hidden_size": 256, "vocab_size": 320,
    "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "global_head_dim": 64, "num_global_key_value_heads": null, "num_kv_shared_layers": 2,
    "use_double_wide_mlp": true, "hidden_size_per_layer_input": 64, "sliding_window": 9,
    "max_position_embeddings": 400, "final_logit_softcapping": 6.0, "eos_token_id": 7,
    "model_type": "gemma4_text"})";

inline FloatTensors random_tensors(const char* config) {
  std::minstd_rand random(11);
  const auto uniform = [&] { return 2 * static_cast<float>(random() % (1 << 20)) / (1 << 20) - 1; };
  FloatTensors all;
  const auto model = make_model(config);
  for (const Blob& blob : model->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.from.empty()) continue;
      FloatTensor& tensor = all[decl.name];
      tensor.dims = decl.dims;
      tensor.values.resize(static_cast<size_t>(*element_count(decl.dims)));
      const bool vector = decl.dims.size() == 1;
      const float scale = vector ? 0.3f : 1.6f / std::sqrt(static_cast<float>(decl.dims.back()));
      for (float& value : tensor.values) value = scale * uniform();
      if (decl.name.ends_with("A_log")) {
        for (float& value : tensor.values) value = 3 * value + 1;
      }
    }
  }
  return all;
}

// The types of matrices in a file of type Q4_K_M.
inline GgmlType q4_k_m(const std::string& name) {
  const bool better = name.find("ffn_down") != name.npos || name.find("attn_v") != name.npos ||
                      name == "token_embd.weight";
  return better ? GgmlType::kQ6_K : GgmlType::kQ4_K;
}
// The settings of the text model.
inline Json text_config(const std::string& name) {
  const Json config = golden_json(name, "config.json");
  return config.contains("text_config") ? config["text_config"] : config;
}
inline bool is_qwen(std::string_view name) { return name.starts_with("qwen35"); }

inline GgufFile file_of(const std::string& golden, GgmlType type = GgmlType::kF32) {
  const Checkpoint checkpoint(model_dir("models/" + golden));
  const auto write = is_qwen(golden) ? gguf_qwen35 : gguf_gemma4;
  return write(text_config(golden), floats_of(checkpoint),
               [&](const std::string&) { return type; });
}

}  // namespace split::test
