// edge_client train: a tail of one's own. The cloud's frozen blocks run once over the text, the
// last ones are trained here, and a file has what they became.
#pragma once

#include <span>
#include <string>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// The arguments behind "train". Returns the exit code; after Ctrl-C what is trained so far lies in
// OUT.part, from which the same command goes on. Throws Error(kInput), Error(kIo), RemoteError.
int train_command(std::span<const std::string> arguments, const World& world, Interrupt& interrupt);

}  // namespace split::edge
