// Qwen3.5, whose family 3.6 and 3.8 share: pre-norm blocks of two kinds, full attention whose
// queries have a gate each, and gated DeltaNet; SwiGLU; norms by 1 + weight but for DeltaNet's own.
// Names and settings follow transformers' Qwen3_5ForConditionalGeneration, whose pictures and
// drafts are left out.
#pragma once

#include "models/model.h"

namespace split {

std::unique_ptr<Model> make_qwen35(std::string_view config_json, std::optional<int> context);
std::vector<std::string> qwen35_examples();
// Whether a tensor is for pictures or for drafts.
bool is_beside_qwen35(std::string_view name);
inline constexpr std::string_view kQwen35Prefixes[] = {"model.language_model.", "model."};
inline constexpr TensorNames kQwen35Names{
    .prefixes = kQwen35Prefixes, .ignored = is_beside_qwen35, .first = "embed_tokens.weight"};

}  // namespace split
