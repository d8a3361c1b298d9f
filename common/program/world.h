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

// Where a run of the program writes: what it prints, what it says, and to whom.
struct Console {
  std::function<bool(std::string_view)> out;  // stdout; false when nobody reads it any more
  std::function<void(std::string_view)> err;  // stderr
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool one_place = false;  // both go to one terminal, pipe or file
  size_t columns = 0;      // of the terminal that stdout is; 0: it is none
  bool colors = false;     // where either is a terminal

  // Of a text's rows: nobody else writes between its pieces.
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
