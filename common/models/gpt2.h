// GPT-2: pre-norm blocks, learned positions, Conv1D weights [in, out]. Source: "Language Models are
// Unsupervised Multitask Learners" (2019); names and settings as in Hugging Face transformers'
// GPT2LMHeadModel.
#pragma once

#include "models/model.h"

namespace split {

std::unique_ptr<Model> make_gpt2(std::string_view config_json, std::optional<int> context);
// An example for each activation.
std::vector<std::string> gpt2_examples();

// Constants of the attention mask, "h.N.attn.bias" and "h.N.attn.masked_bias", which old
// transformers saved as buffers.
bool is_gpt2_mask(std::string_view name);
inline constexpr std::string_view kGpt2Prefixes[] = {"transformer."};
inline constexpr TensorNames kGpt2Names{
    .prefixes = kGpt2Prefixes, .ignored = is_gpt2_mask, .first = "wte.weight"};

}  // namespace split
