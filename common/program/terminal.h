// Text for a terminal: lines no wider than it, and marks if it shows colours. Knows no program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace split {

size_t terminal_columns(int fd);  // 0: not a terminal

// Breaks lines at spaces, so that none has more columns; continuations begin below the last word
// behind two or more spaces, else two columns in. A longer word stays whole, and a line that is
// drawn over (with a carriage return) is cut. 0 columns: unchanged.
std::string wrapped(std::string_view text, size_t columns);

// A text that comes in pieces, without other output meanwhile: a word that would cross the edge is
// moved to the next row. Rows with characters of no column or of two stay unchanged.
class RunningText {
 public:
  explicit RunningText(size_t columns) : columns_(columns) {}  // 0: pieces stay as they are
  // Returns what to write for the next piece.
  std::string next(std::string_view piece);

 private:
  size_t columns_;
  size_t at_ = 0;     // columns used in the row
  std::string word_;  // the row's last word
  bool plain_ = false;
};

enum class Mark : uint8_t { kBold = 1, kDim = 2, kRed = 31, kGreen = 32, kYellow = 33 };
// Returns the text, unchanged without `colors`.
std::string marked(bool colors, Mark mark, std::string_view text);

}  // namespace split
