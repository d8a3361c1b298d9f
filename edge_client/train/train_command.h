// edge_client train: fine-tunes the last blocks on a text. The cloud's frozen blocks run once over
// it, the last ones are trained here, and saved to a file.
#pragma once

#include <span>
#include <string>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// `arguments` without "train". Returns the exit code; after Ctrl-C the progress is in OUT.part,
// from which the same command goes on. Throws Error(kInput), Error(kIo), RemoteError.
int train_command(std::span<const std::string> arguments, const World& world, Interrupt& interrupt);

}  // namespace split::edge
