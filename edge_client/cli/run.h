// One run of edge_client: from the command line to the exit code, with the outside world passed in,
// so that tests run the whole program in their own process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Returns the exit code (program/exit_codes.h). Errors are one line on stderr.
int edge_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt);

// Runs a command, and makes an Error one line on stderr. Returns the exit code, after a signal the
// signal's.
int run_command(const World& world, Interrupt& interrupt, const std::function<int()>& command);

// Peak memory of this process in bytes; 0 if unknown.
uint64_t peak_memory();

uint64_t drawn_seed();  // short enough to type

}  // namespace split::edge
