// The page's functions for the tab's code, beside fibres, requests and files.
#pragma once

#include <string_view>

namespace split::page {

// Reports a bug of ours, or a fatal error, to the page, and ends this instance.
[[noreturn]] void fail(std::string_view line);
// Writes a line to the console.
void say(std::string_view line);

}  // namespace split::page
