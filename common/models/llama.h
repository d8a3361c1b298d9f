// The Llama family: pre-norm blocks with RMSNorm, rotary positions, grouped queries and a gated
// MLP; weights [out, in]. What its members differ in is a row of a table each (llama_config.cpp).
// Sources: "LLaMA" (2023), "Gemma 2" (2024); names and settings as in Hugging Face transformers'
// LlamaForCausalLM and its kin. Two are encoders, whose rows see those behind them too: ModernBERT,
// and a Gemma 3 that config.json says so of (EmbeddingGemma).
#pragma once

#include "models/model.h"

namespace split {

// For each model_type of its table.
std::unique_ptr<Model> make_llama(std::string_view config_json, std::optional<int> context);
// One for each of what has kernels of its own.
std::vector<std::string> llama_examples();

// Buffers of the rotary positions, which old files have.
bool is_rotary_buffer(std::string_view name);
inline constexpr std::string_view kLlamaPrefixes[] = {"model."};
inline constexpr TensorNames kLlamaNames{
    .prefixes = kLlamaPrefixes, .ignored = is_rotary_buffer, .first = "embed_tokens.weight"};
// Names that a ModernBERT has for what is the same elsewhere.
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
