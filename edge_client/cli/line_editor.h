// A line editor for a terminal, with a shell's keys: arrows, Home and End, Ctrl-A E K U W, and
// earlier lines by up and down. UTF-8; a line that is too long scrolls. Does not interpret the
// lines.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "edge_client/split/lock_order.h"
#include "program/interrupt.h"

namespace split::edge {

// A line with a cursor. Keys come as the terminal's bytes.
class Line {
 public:
  enum class Key { kMore, kEnter, kCancel, kEnd, kClear };
  // Takes one byte. kEnter: the line is complete; kCancel: Ctrl-C; kEnd: Ctrl-D on an empty line;
  // kClear: Ctrl-L, to clear the screen.
  Key type(char byte, const std::vector<std::string>& history);
  const std::string& text() const { return text_; }
  // Returns what draws the line after `prompt` on a terminal of so many columns, from the beginning
  // of the row.
  std::string drawn(std::string_view prompt, size_t prompt_columns, size_t columns) const;

 private:
  void escape(char byte, const std::vector<std::string>& history);
  void insert(char byte);
  size_t before(size_t at) const;  // start of the character before `at`
  size_t after(size_t at) const;
  void erase(size_t from, size_t to);
  void recall(const std::vector<std::string>& history, size_t back);

  std::string text_, typed_;  // typed_: the new line, while an older one is shown
  size_t at_ = 0;             // cursor, in bytes
  size_t back_ = 0;           // position in the history, from its end
  std::string escape_;        // an unfinished escape sequence
};

class LineEditor {
 public:
  using Say = std::function<void(std::string_view)>;
  // `input` is a terminal, `say` writes to it. `history`: file of earlier lines, shared with later
  // runs; empty: none.
  LineEditor(int input, Say say, Interrupt& interrupt, std::filesystem::path history = {});

  enum class Outcome { kLine, kCancelled, kEnd };  // kEnd: Ctrl-D, interrupted, or no terminal
  // Returns the next line; pasted lines come one by one.
  Outcome read(std::string_view prompt, size_t prompt_columns, std::string& line);
  // Prints lines above the one being typed, or above the next one. Any thread.
  void tell(std::string_view lines);

 private:
  enum class Came;
  Came fill(int wake);
  void say_told();
  void remember(const std::string& line);

  const int input_;
  const Say say_;
  Interrupt& interrupt_;
  const std::filesystem::path file_;
  std::vector<std::string> history_;
  std::string typed_ahead_;              // keys after the last line
  const std::shared_ptr<void> no_echo_;  // hides typed keys, which the editor draws
  const Fd told_wake_;
  Mutex telling_{LockOrder::kEditor};  // guards told_
  std::string told_;
};

// File of earlier lines, kept between runs; empty if there is no place for it.
std::filesystem::path history_file(const std::function<const char*(const char*)>& environment);

}  // namespace split::edge
