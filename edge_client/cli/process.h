// A program with this process as its world: standard streams, environment, signals.
#pragma once

#include <string>
#include <vector>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

using Program = int (*)(const std::vector<std::string>& arguments, const World& world,
                        Interrupt& interrupt);

// Returns the exit code. Called by main() alone.
int run_process(int argc, char** argv, Program program);

}  // namespace split::edge
