// One run of edge_client: from the command line to the exit code, with the outside world passed in,
// so that tests run the whole program in their own process.
#pragma once

#include <string>
#include <vector>

#include "base/flags.h"
#include "base/interrupt.h"
#include "edge_client/cli/progress.h"

namespace split::edge {

struct World {
  Console console;
  Flags::Environment environment;
  int input = 0;  // descriptor of stdin
};

// Returns the exit code (base/exit_codes.h). Errors are one line on stderr.
int edge_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt);

uint64_t drawn_seed();  // short enough to be typed again

}  // namespace split::edge
