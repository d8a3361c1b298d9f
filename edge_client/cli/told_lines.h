// Lines on stderr about a run, beside the text that it writes, never between words of a text that
// goes to the same terminal.
#pragma once

#include <functional>
#include <string>

#include "edge_client/split/lock_order.h"
#include "program/world.h"

namespace split::edge {

// Any thread.
class ToldLines {
 public:
  // The console outlives it. `quiet`: prints nothing.
  ToldLines(const Console& console, bool quiet) : console_(console), quiet_(quiet) {}

  void begin_text();
  // Prints what was held meanwhile, and ignores later lines.
  void end_text();
  // Prints the line now, or after the text being written to the same terminal.
  void tell(const std::string& line);
  // Sets a printer of lines that draws the terminal's last row, for many texts; null: none.
  void through(std::function<void(const std::string&)> teller);
  // Prints the line now or never: it matters only while a text runs alone. Prints a repeated line
  // once.
  void tell_beside(const std::string& line);

 private:
  const Console& console_;
  const bool quiet_;
  Mutex mutex_{LockOrder::kLines};  // guards the members below
  std::string last_beside_, held_;
  bool writing_ = false, over_ = false;
  std::function<void(const std::string&)> teller_;
};

// The receipt with colours: its labels dim, its verdict marked.
std::string told_receipt(const std::string& receipt, const Console& console);
// The line of an error that ends a run, or one of its texts.
std::string told_error(std::string_view what, const Console& console);

}  // namespace split::edge
