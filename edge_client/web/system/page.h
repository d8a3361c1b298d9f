// The page as the tab's code asks it, beside fibres, requests and files.
#pragma once

#include <string_view>

namespace split::page {

// Our own bug, or no way to go on: the page hears the line, and this instance ends.
[[noreturn]] void fail(std::string_view line);
// A line for the console.
void say(std::string_view line);

}  // namespace split::page
