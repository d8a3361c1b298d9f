// The command line of edge_client: every flag read and checked. Knows what the words mean and not
// what is done about them.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/options.h"
#include "program/flags.h"

namespace split::edge {

struct CommandLine {
  Flags::Asked asked = Flags::Asked::kNothing;
  Options options;
  std::string help;
};

// `cut_moves`: the cut is "auto" where no flag says what runs here. `columns`: of the terminal that
// the help is for; 0: none. Throws Error(kInput), one line.
CommandLine read_command_line(const std::vector<std::string>& arguments,
                              const Flags::Environment& environment, bool cut_moves = true,
                              size_t columns = 0);

}  // namespace split::edge
