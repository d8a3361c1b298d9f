// Lines on stderr about a run, beside the text that it writes. None comes between the words of a
// text that goes to the same place.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "program/world.h"

namespace split::edge {

// Any thread.
class ToldLines {
 public:
  // The console outlives it. With `quiet` nothing is told.
  ToldLines(const Console& console, bool quiet) : console_(console), quiet_(quiet) {}

  void begin_text();
  // Tells what was held meanwhile. Nothing is told from then on.
  void end_text();
  // Tells it now, or behind the text that is being written to the same place.
  void tell(const std::string& line);
  // Whoever draws the terminal's last row tells them from now on, of many texts; null: nobody.
  void through(std::function<void(const std::string&)> teller);
  // Tells it now, or not at all: it is of interest while a text runs alone. Once for lines that
  // repeat.
  void tell_beside(const std::string& line);

 private:
  const Console& console_;
  const bool quiet_;
  std::mutex mutex_;  // of:
  std::string last_beside_, held_;
  bool writing_ = false, over_ = false;
  std::function<void(const std::string&)> teller_;
};

// With colours: the names of its lines are dim, and its verdict stands out.
std::string told_receipt(const std::string& receipt, const Console& console);
// The line of an error that ends a run, or a text of it.
std::string told_error(std::string_view what, const Console& console);

}  // namespace split::edge
