// The tokens that end a model's texts, from all of its files.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace split {

// eos_token_id of generation_config.json, a number or a list, and the eos_token, eot_token and
// eom_token of tokenizer_config.json; config.json's own are the model's already. Throws
// Error(kInput) for a damaged file.
std::vector<int> stops_of_files(std::span<const std::string> names,
                                const std::function<std::string(const char*)>& file,
                                const Tokenizer* tokenizer);

}  // namespace split
