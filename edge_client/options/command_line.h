// The command line of edge_client: every flag read and checked. Knows what the words mean and not
// what is done about them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "edge_client/options/options.h"
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

// edge_client train: a text, the file that a tail becomes, and how it is trained.
struct TrainCommand {
  Flags::Asked asked = Flags::Asked::kNothing;
  Options options;
  std::string help;
  std::string text, out, known;
  int blocks = 0, lora = 0;  // 0: none; of a LoRA alone the last two
  int64_t steps = 0;         // 0: by the text
  uint64_t seed = 0;
};
// The arguments behind the word. Throws Error(kInput), one line.
TrainCommand read_train_command(const std::vector<std::string>& arguments,
                                const Flags::Environment& environment, size_t columns = 0);

// The options of an edge in a program of somebody else's: members named as the long flags that do
// not ask for a terminal or a port, with values as text, numbers or true. The environment is not
// read. Throws Error(kInput), one line.
Options read_engine_options(const Json& given);

}  // namespace split::edge
