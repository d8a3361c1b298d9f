// The prompt's bytes, from where the user said they are.
#pragma once

#include <string>

#include "edge_client/options.h"

namespace split::edge {

// From --prompt, --prompt-file or the descriptor `input`; nothing for --prompt-ids. Throws
// Error(kInput) when there is none or it is absurdly long, Error(kNotFound, kIo) for the file.
std::string read_prompt(const Options& options, int input);

}  // namespace split::edge
