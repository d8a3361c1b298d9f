#include "io/gguf_architectures.h"

#include <algorithm>
#include <span>

namespace split {
namespace {

struct Names {
  std::string_view gguf, hugging_face;
};
constexpr Names kGpt2Outside[] = {{"token_embd.weight", "wte.weight"},
                                  {"position_embd.weight", "wpe.weight"},
                                  {"output_norm.weight", "ln_f.weight"},
                                  {"output_norm.bias", "ln_f.bias"},
                                  {"output.weight", "lm_head.weight"}};
constexpr Names kGpt2InBlock[] = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                                  {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                                  {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};
constexpr Names kLlamaOutside[] = {{"token_embd.weight", "embed_tokens.weight"},
                                   {"token_embd_norm.weight", "embed_norm.weight"},
                                   {"output_norm.weight", "norm.weight"},
                                   {"output.weight", "lm_head.weight"}};
constexpr Names kLlamaInBlock[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};
constexpr Names kModernInBlock[] = {{"attn_qkv", "self_attn.qkv_proj"},
                                    {"ffn_up", "mlp.gate_up_proj"}};
// Gemma's blocks have norms behind attention and MLP too.
constexpr Names kGemmaInBlock[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"post_ffw_norm", "post_feedforward_layernorm"}};

constexpr Names kBertOutside[] = {{"token_embd.weight", "embeddings.word_embeddings.weight"},
                                  {"position_embd.weight", "embeddings.position_embeddings.weight"},
                                  {"token_types.weight", "embeddings.token_type_embeddings.weight"},
                                  {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
                                  {"token_embd_norm.bias", "embeddings.LayerNorm.bias"}};
constexpr Names kBertInBlock[] = {{"attn_q", "attention.self.query"},
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
     .linear_in_out = true},
    {.name = "llama",
     .what = "a Llama",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .turned_heads = true},
    {.name = "qwen2", .what = "a Qwen2", .blocks = "layers.", .embedding = "embed_tokens.weight"},
    {.name = "qwen3", .what = "a Qwen3", .blocks = "layers.", .embedding = "embed_tokens.weight"},
    {.name = "gemma2",
     .what = "a Gemma 2",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .norms_plus_one = true},
    {.name = "gemma3",
     .what = "a Gemma 3",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .norms_plus_one = true},
    {.name = "bert",
     .what = "a BERT",
     .blocks = "encoder.layer.",
     .embedding = "embeddings.word_embeddings.weight",
     .encodes = true},
    {.name = "modern-bert",
     .what = "a ModernBERT",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .encodes = true},
    {.name = "gemma-embedding",
     .what = "an EmbeddingGemma",
     .blocks = "layers.",
     .embedding = "embed_tokens.weight",
     .norms_plus_one = true,
     .encodes = true}};

std::string_view found(std::span<const Names> names, std::string_view gguf) {
  const auto at = std::ranges::find(names, gguf, &Names::gguf);
  return at == names.end() ? "" : at->hugging_face;
}

std::string_view name_in_block(const GgufArchitecture& architecture, std::string_view part) {
  if (architecture.is_gpt2()) return found(kGpt2InBlock, part);
  if (architecture.is_bert()) return found(kBertInBlock, part);
  const std::string_view own = architecture.norms_plus_one     ? found(kGemmaInBlock, part)
                               : architecture.is_modern_bert() ? found(kModernInBlock, part)
                                                               : std::string_view();
  return own.empty() ? found(kLlamaInBlock, part) : own;
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
  const std::string_view outside = architecture.is_gpt2()   ? found(kGpt2Outside, name)
                                   : architecture.is_bert() ? found(kBertOutside, name)
                                                            : found(kLlamaOutside, name);
  if (!outside.empty()) return std::string(outside);
  if (name.starts_with("blk.")) {
    const std::string_view rest = name.substr(4);
    const size_t dot = std::min(rest.find('.'), rest.size()), end = rest.rfind('.');
    if (parse_u64(rest.substr(0, dot), 0, kGgufMaxSize) && end != rest.npos && end > dot) {
      const std::string_view kind = rest.substr(end);
      const std::string_view ours =
          name_in_block(architecture, rest.substr(dot + 1, end - dot - 1));
      if (!ours.empty() && (kind == ".weight" || kind == ".bias")) {
        return cat(architecture.blocks, rest.substr(0, dot), ".", ours, kind);
      }
    }
  }
  file.refuse(cat("tensor ", shown(name), " is none of ", architecture.what, "'s"));
}

}  // namespace split
