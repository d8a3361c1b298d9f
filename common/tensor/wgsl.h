// The op table in WGSL. The subset of GLSL that the table is written in differs from it in words
// alone, so that it is translated word by word, without a parser.
#pragma once

#include <string>
#include <string_view>

namespace split {

// Returns rows or functions of the table, which are GLSL, as WGSL. Their calls of the table's
// functions need op_functions_wgsl().
std::string wgsl_of(std::string_view glsl);
// Returns the table's functions, and what they use beside WGSL's own, as far as `text`, a row in
// GLSL, calls them.
std::string op_functions_wgsl(std::string_view text);

}  // namespace split
