// The command line of edge_client: reads and checks every flag. Knows what flags mean, not what is
// done about them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "edge_client/options/options.h"
#include "program/world.h"

namespace split::edge {

struct CommandLine {
  Flags::Asked asked = Flags::Asked::kNothing;
  Options options;
  std::string help;
};

// `cut_moves`: the cut is "auto" if no flag says what runs here. Throws Error(kInput), one line.
CommandLine read_command_line(const std::vector<std::string>& arguments, const World& world,
                              bool cut_moves = true);

// Flags of the server, and what the one of its URL means. Throws Error(kInput), one line.
void add_server_flags(Flags& flags, Options& options);
void read_server(Options& options);

// edge_client train: a text, the output file, and how the last blocks are trained.
struct TrainCommand : CommandLine {
  std::string text, out, known;
  int blocks = 0, lora = 0;  // 0: none; with --lora alone, the last two blocks
  int64_t steps = 0;         // 0: by the text's length
  uint64_t seed = 0;
};
// Reads the arguments after "train". Throws Error(kInput), one line.
TrainCommand read_train_command(const std::vector<std::string>& arguments, const World& world);

// Reads the options of an edge within another program: members named like the long flags that need
// no terminal or port, with values as text, numbers or true. Ignores the environment. Throws
// Error(kInput), one line.
Options read_engine_options(const Json& given);

}  // namespace split::edge
