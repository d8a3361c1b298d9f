// Gemma 4's text models: blocks of two kinds with heads of two sizes, norms by the weight itself,
// values that are normed too, and a factor for all that leaves a block. In E each block also takes
// an input of its own, of a row's token and embedding, and the last blocks read the keys and values
// of blocks before them. Names and settings follow transformers' Gemma4ForConditionalGeneration,
// whose pictures and sounds are left out.
#pragma once

#include "models/model.h"

namespace split {

std::unique_ptr<Model> make_gemma4(std::string_view config_json, std::optional<int> context);
std::vector<std::string> gemma4_examples();
// Whether a tensor is for pictures or sounds.
bool is_beside_gemma4(std::string_view name);
inline constexpr std::string_view kGemma4Prefixes[] = {"model.language_model.", "model."};
inline constexpr TensorNames kGemma4Names{
    .prefixes = kGemma4Prefixes, .ignored = is_beside_gemma4, .first = "embed_tokens.weight"};

}  // namespace split
