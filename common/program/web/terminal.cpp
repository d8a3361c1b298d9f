#include "program/terminal.h"

namespace split {

// A console has no colours.
std::string marked(bool, Mark, std::string_view text) { return std::string(text); }

}  // namespace split
