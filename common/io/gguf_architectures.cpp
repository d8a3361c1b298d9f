#include "io/gguf_architectures.h"

#include <algorithm>
#include <span>

namespace split {
namespace {

constexpr GgufName kGpt2Outside[] = {{"token_embd.weight", "wte.weight"},
                                     {"position_embd.weight", "wpe.weight"},
                                     {"output_norm.weight", "ln_f.weight"},
                                     {"output_norm.bias", "ln_f.bias"},
                                     {"output.weight", "lm_head.weight"}};
constexpr GgufName kGpt2InBlock[] = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                                     {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                                     {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};
constexpr GgufName kLlamaOutside[] = {{"token_embd.weight", "embed_tokens.weight"},
                                      {"token_embd_norm.weight", "embed_norm.weight"},
                                      {"output_norm.weight", "norm.weight"},
                                      {"output.weight", "lm_head.weight"}};
constexpr GgufName kLlamaInBlock[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
constexpr GgufName kModernInBlock[] = {{"attn_qkv", "self_attn.qkv_proj"},
                                       {"ffn_up", "mlp.gate_up_proj"}};
// Gemma's blocks have norms behind attention and MLP too.
constexpr GgufName kGemmaInBlock[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                      {"post_attention_norm", "post_attention_layernorm"},
                                      {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr GgufName kGemma4Outside[] = {
    {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight"}};
constexpr GgufName kGemma4InBlock[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                       {"post_attention_norm", "post_attention_layernorm"},
                                       {"post_ffw_norm", "post_feedforward_layernorm"},
                                       {"inp_gate", "per_layer_input_gate"},
                                       {"proj", "per_layer_projection"},
                                       {"post_norm", "post_per_layer_input_norm"}};
constexpr GgufName kGemma4Whole[] = {{"layer_output_scale.weight", "layer_scalar"}};
constexpr GgufName kQwen35InBlock[] = {{"post_attention_norm", "post_attention_layernorm"},
                                       {"attn_qkv", "linear_attn.in_proj_qkv"},
                                       {"attn_gate", "linear_attn.in_proj_z"},
                                       {"ssm_alpha", "linear_attn.in_proj_a"},
                                       {"ssm_beta", "linear_attn.in_proj_b"},
                                       {"ssm_conv1d", "linear_attn.conv1d"},
                                       {"ssm_norm", "linear_attn.norm"},
                                       {"ssm_out", "linear_attn.out_proj"}};
constexpr GgufName kQwen35Whole[] = {{"ssm_a", "linear_attn.A_log"},
                                     {"ssm_dt.bias", "linear_attn.dt_bias"}};

constexpr GgufName kBertOutside[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"position_embd.weight", "embeddings.position_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias"}};
constexpr GgufName kBertInBlock[] = {{"attn_q", "attention.self.query"},
                                     {"attn_k", "attention.self.key"},
                                     {"attn_v", "attention.self.value"},
                                     {"attn_output", "attention.output.dense"},
                                     {"attn_output_norm", "attention.output.LayerNorm"},
                                     {"ffn_up", "intermediate.dense"},
                                     {"ffn_down", "output.dense"},
                                     {"layer_output_norm", "output.LayerNorm"}};

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "gpt2",
     .what = "a GPT-2",
     .blocks = "h.",
     .embedding = "wte.weight",
     .outside = kGpt2Outside,
     .in_block = kGpt2InBlock,
     .linear_in_out = true},
    {.name = "llama",
     .what = "a Llama",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .turned_heads = true},
    {.name = "qwen2", .what = "a Qwen2", .blocks = "layers.", .embedding = "embed_tokens.weight"},
    {.name = "qwen3", .what = "a Qwen3", .blocks = "layers.", .embedding = "embed_tokens.weight"},
    {.name = "qwen35",
     .what = "a Qwen3.5",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .in_block = kQwen35InBlock,
     .whole = kQwen35Whole,
     .norms_plus_one = true},
    {.name = "gemma2",
     .what = "a Gemma 2",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .in_block = kGemmaInBlock,
     .norms_plus_one = true},
    {.name = "gemma3",
     .what = "a Gemma 3",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .in_block = kGemmaInBlock,
     .norms_plus_one = true},
    {.name = "gemma4",
     .what = "a Gemma 4",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .outside = kGemma4Outside,
     .in_block = kGemma4InBlock,
     .whole = kGemma4Whole},
    {.name = "bert",
     .what = "a BERT",
     .blocks = "encoder.layer.",
     .embedding = "embeddings.word_embeddings.weight",
     .outside = kBertOutside,
     .in_block = kBertInBlock,
     .encodes = true},
    {.name = "modern-bert",
     .what = "a ModernBERT",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .in_block = kModernInBlock,
     .encodes = true},
    {.name = "gemma-embedding",
     .what = "an EmbeddingGemma",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .in_block = kGemmaInBlock,
     .norms_plus_one = true,
     .encodes = true}};

std::string_view found(std::span<const GgufName> names, std::string_view gguf) {
  const auto at = std::ranges::find(names, gguf, &GgufName::gguf);
  return at == names.end() ? "" : at->hugging_face;
}

// Finds a name among the architecture's own, else among a Llama's, from which most differ little.
std::string_view found(const GgufArchitecture& architecture, std::span<const GgufName> own,
                       std::span<const GgufName> llamas, std::string_view gguf) {
  const std::string_view name = found(own, gguf);
  const bool apart = architecture.is_gpt2() || architecture.is_bert();
  return name.empty() && !apart ? found(llamas, gguf) : name;
}

// Returns the name of a tensor of a block; empty for an unknown one.
std::string name_in_block(const GgufArchitecture& architecture, std::string_view part) {
  if (const auto whole = found(architecture.whole, part); !whole.empty()) return std::string(whole);
  const size_t end = std::min(part.rfind('.'), part.size());
  const std::string_view kind = part.substr(end);
  const std::string_view ours =
      found(architecture, architecture.in_block, kLlamaInBlock, part.substr(0, end));
  return ours.empty() || (kind != ".weight" && kind != ".bias") ? "" : cat(ours, kind);
}

}  // namespace

const GgufArchitecture& gguf_architecture(const Gguf& file) {
  const std::string_view name = file.text("general.architecture");
  std::string known;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    known += cat(known.empty()                                   ? "\""
                 : &architecture == std::end(kArchitectures) - 1 ? " or \""
                                                                 : ", \"",
                 architecture.name, "\"");
  }
  file.refuse(cat("general.architecture: expected ", known, ", got ", shown(name)));
}

std::string hugging_face_name(const Gguf& file, const GgufArchitecture& architecture,
                              std::string_view name) {
  if (!architecture.is_gpt2() && !architecture.is_bert() && name == kGgufRopeFactors) return "";
  if (architecture.encodes && std::ranges::find(kGgufDense, name) != std::end(kGgufDense)) {
    return "";
  }
  const std::string_view outside = found(architecture, architecture.outside, kLlamaOutside, name);
  if (!outside.empty()) return std::string(outside);
  if (name.starts_with("blk.")) {
    const std::string_view rest = name.substr(4);
    const size_t dot = std::min(rest.find('.'), rest.size());
    const auto block = parse_u64(rest.substr(0, dot), 0, kGgufMaxSize);
    if (block && gguf_drafts(file, architecture, *block)) return "";
    const std::string ours =
        block && dot < rest.size() ? name_in_block(architecture, rest.substr(dot + 1)) : "";
    if (!ours.empty()) return cat(architecture.blocks, rest.substr(0, dot), ".", ours);
  }
  file.refuse(cat("tensor ", shown(name), " is none of ", architecture.what, "'s"));
}

}  // namespace split
