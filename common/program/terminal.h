// Text for a terminal: lines that are no wider than it, and marks where it shows colours.
// Knows no program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace split {

size_t terminal_columns(int fd);  // 0: it is no terminal

// Breaks lines at spaces, so that none has more columns; what goes on stands below the last word
// that two spaces or more are before, else two columns in. A word that is longer stays whole, and a
// line that is drawn over (with a carriage return) is cut. 0 columns: as it is.
std::string wrapped(std::string_view text, size_t columns);

// A text that comes in pieces, where nobody else writes meanwhile: a word that would cross the edge
// is taken back and begins the next row. Rows with characters of no column or of two stay as they
// are.
class RunningText {
 public:
  explicit RunningText(size_t columns) : columns_(columns) {}  // 0: pieces stay as they are
  // Returns what to write for the next piece.
  std::string next(std::string_view piece);

 private:
  size_t columns_;
  size_t at_ = 0;     // columns that the row has
  std::string word_;  // the one that it ends with
  bool plain_ = false;
};

enum class Mark : uint8_t { kBold = 1, kDim = 2, kRed = 31, kGreen = 32, kYellow = 33 };
// Returns the text as it is without `colors`.
std::string marked(bool colors, Mark mark, std::string_view text);

}  // namespace split
