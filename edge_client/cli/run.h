// One run of edge_client: from the command line to the exit code, with the outside world passed in,
// so that tests run the whole program in their own process.
#pragma once

#include <string>
#include <vector>

#include "base/flags.h"
#include "edge_client/cli/interrupt.h"
#include "edge_client/cli/progress.h"

namespace split::edge {

struct World {
  Console console;
  Flags::Environment environment;
  int input = 0;  // descriptor of stdin
};

// 0; 2 usage or input; 3 the server cannot be reached or refuses; 4 cache or disk; 5 bytes that are
// not what they should be; 6 no such device; 98 the address of --serve is in use; 130 and 0 after
// SIGINT and SIGTERM. Errors are one line on stderr.
int edge_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt);

uint64_t drawn_seed();  // short enough to be typed again
// Of an error that ends the program.
int exit_code_of(ErrorKind kind);

}  // namespace split::edge
