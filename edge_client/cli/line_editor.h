// Lines typed at a terminal, edited as one is used to from a shell: arrows, Home and End, Ctrl-A E
// K U W, and the lines before by up and down. UTF-8; a line that is too long scrolls. Knows nothing
// of what the lines are for.
#pragma once

#include <termios.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "program/interrupt.h"

namespace split::edge {

// A line and the place in it where what is typed goes. Any terminal's keys come in as bytes.
class Line {
 public:
  enum class Key { kMore, kEnter, kCancel, kEnd, kClear };
  // Takes one byte. kEnter: the line is complete; kCancel: Ctrl-C; kEnd: Ctrl-D on an empty line;
  // kClear: Ctrl-L, the screen is to be cleared.
  Key type(char byte, const std::vector<std::string>& history);
  const std::string& text() const { return text_; }
  // Returns what a terminal of so many columns shows behind `prompt`, from the beginning of its row
  // on.
  std::string drawn(std::string_view prompt, size_t prompt_columns, size_t columns) const;

 private:
  void escape(char byte, const std::vector<std::string>& history);
  void insert(char byte);
  size_t before(size_t at) const;  // of the character there
  size_t after(size_t at) const;
  void erase(size_t from, size_t to);
  void recall(const std::vector<std::string>& history, size_t back);

  std::string text_, typed_;  // typed_: while an older line is shown
  size_t at_ = 0;             // bytes
  size_t back_ = 0;           // how far in the history
  std::string escape_;        // a sequence that has begun
};

// Hides typed keys while it lives, but for what the editor draws.
class NoEcho {
 public:
  explicit NoEcho(int fd);
  ~NoEcho();
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

 private:
  const int fd_;
  termios before_{};
  const bool good_;
};

class LineEditor {
 public:
  using Say = std::function<void(std::string_view)>;
  // `input` is a terminal, `say` writes to it. The lines before are in `history`, a file that later
  // runs read too; empty: in none.
  LineEditor(int input, Say say, Interrupt& interrupt, std::filesystem::path history = {});

  enum class Outcome { kLine, kCancelled, kEnd };  // kEnd: Ctrl-D, or interrupted, or no terminal
  // Lines that were pasted behind one are the next ones.
  Outcome read(std::string_view prompt, size_t prompt_columns, std::string& line);
  // Says lines above the one that is typed; where none is, above the next one. Any thread.
  void tell(std::string_view lines);

 private:
  enum class Came { kKeys, kLines, kNothing };
  Came fill(int wake);
  void say_told();
  void remember(const std::string& line);

  const int input_;
  const Say say_;
  Interrupt& interrupt_;
  const std::filesystem::path file_;
  std::vector<std::string> history_;
  std::string typed_ahead_;  // keys that are not of a line yet
  const NoEcho no_echo_;
  const Fd told_wake_;
  std::mutex telling_;  // of:
  std::string told_;
};

// Where the lines of one program are kept between its runs; empty where there is no place.
std::filesystem::path history_file(const std::function<const char*(const char*)>& environment);

}  // namespace split::edge
