// The prompt's bytes, from where the user said they are.
#pragma once

#include <string>

#include "edge_client/cli/options.h"
#include "program/interrupt.h"

namespace split::edge {

// From --prompt, --prompt-file or the descriptor `input`; nothing for --prompt-ids. Throws
// Error(kInput) when there is none, it cannot be read, it is absurdly long, or it is waited for and
// the program is interrupted.
std::string read_prompt(const Options& options, int input, Interrupt& interrupt);

}  // namespace split::edge
