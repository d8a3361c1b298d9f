// The Llama family: pre-norm blocks with RMSNorm, rotary positions, grouped queries and a gated
// MLP; weights [out, in]. A table has the members' differences (llama_config.cpp). Sources: "LLaMA"
// (2023), "Gemma 2" (2024); names and settings follow Hugging Face transformers' LlamaForCausalLM
// and relatives. Two are encoders, whose rows see later ones too: ModernBERT, and a Gemma 3 with
// that setting in config.json (EmbeddingGemma).
#pragma once

#include "models/model.h"

namespace split {

// Makes a member of the table, by its model_type.
std::unique_ptr<Model> make_llama(std::string_view config_json, std::optional<int> context);
// An example for each setting with kernels of its own.
std::vector<std::string> llama_examples();

// Buffers of the rotary positions in old files.
bool is_rotary_buffer(std::string_view name);
inline constexpr std::string_view kLlamaPrefixes[] = {"model."};
inline constexpr TensorNames kLlamaNames{
    .prefixes = kLlamaPrefixes, .ignored = is_rotary_buffer, .first = "embed_tokens.weight"};
// ModernBERT's names for weights that others have too.
inline constexpr TensorNames::Alias kModernBertAliases[] = {
    {"embeddings.tok_embeddings.weight", "embed_tokens.weight"},
    {"embeddings.norm.weight", "embed_norm.weight"},
    {"final_norm.weight", "norm.weight"},
    {".attn_norm.weight", ".input_layernorm.weight"},
    {".mlp_norm.weight", ".post_attention_layernorm.weight"},
    {".attn.Wqkv.weight", ".self_attn.qkv_proj.weight"},
    {".attn.Wo.weight", ".self_attn.o_proj.weight"},
    {".mlp.Wi.weight", ".mlp.gate_up_proj.weight"},
    {".mlp.Wo.weight", ".mlp.down_proj.weight"}};
// Heads of a task.
bool is_beside_modern_bert(std::string_view name);
inline constexpr TensorNames kModernBertNames{.prefixes = kLlamaPrefixes,
                                              .aliases = kModernBertAliases,
                                              .ignored = is_beside_modern_bert,
                                              .first = "embed_tokens.weight"};

}  // namespace split
