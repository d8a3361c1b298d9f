// One line per event on stderr. No line ever holds a prompt, a token, a key or a hidden state.
#pragma once

#include <string_view>

namespace split {

// Writes "LEVEL message" and a newline in one write(2), so that lines of several threads do not
// mix.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

// SPLIT_DEBUG from the environment: 0 silent (default), 1 programs, 2 time per step, 3 graph, 4
// GLSL.
int debug_level();

}  // namespace split
