// The Llama family: pre-norm blocks with RMSNorm, rotary positions, grouped queries and a gated
// MLP; weights [out, in]. What its members differ in is a row of a table each (llama_config.cpp).
// Sources: "LLaMA" (2023), "Gemma 2" (2024); names and settings as in Hugging Face transformers'
// LlamaForCausalLM and its kin.
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

}  // namespace split
