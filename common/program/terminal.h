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

enum class Mark : uint8_t { kBold = 1, kDim = 2, kRed = 31, kGreen = 32, kYellow = 33 };
// Returns the text as it is without `colors`.
std::string marked(bool colors, Mark mark, std::string_view text);

}  // namespace split
