// The parts of its process that a run of a program sees, passed in, so that tests run whole
// programs in their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "program/flags.h"

namespace split::http {
class Transport;
}

namespace split {

// The outputs of a run of the program.
struct Console {
  std::function<bool(std::string_view)> out;  // stdout; false when its reader has gone
  std::function<void(std::string_view)> err;  // stderr
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool one_place = false;  // both go to one terminal, pipe or file
  size_t columns = 0;      // width of the terminal on stdout; 0: not a terminal
  bool colors = false;     // set if either is a terminal

  // The columns of a text's rows, if no other output comes between its pieces.
  size_t text_columns() const { return out_is_terminal && one_place ? columns : 0; }
  bool err_colors() const { return colors && err_is_terminal; }
  bool out_colors() const { return colors && out_is_terminal; }
};

struct World {
  Console console;
  Flags::Environment environment;
  int input = 0;  // descriptor of stdin
  // Makes the way to a server (http::Connector); empty: the system's.
  std::function<std::unique_ptr<http::Transport>(const std::string& url)> connector = {};
};

}  // namespace split
