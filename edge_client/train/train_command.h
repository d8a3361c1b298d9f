// edge_train, started by `edge_client train`: fine-tunes the last blocks on a text. The cloud's
// frozen blocks run once over it, the last ones are trained here, and saved to a file.
#pragma once

#include <string>
#include <vector>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Takes what stands behind "train". Returns the exit code; after Ctrl-C the progress is in
// OUT.part, from which the same command goes on. Errors are one line on stderr. "check DEVICE" runs
// the operations of training there instead, and prints how many hold.
int train_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt);

}  // namespace split::edge
