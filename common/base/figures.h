// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace split {

std::string fixed(double value, int digits);  // "3.14"
std::string human_bytes(uint64_t bytes);      // "1.5 MB"
std::string utc_text(int64_t seconds);        // since 1970: "2026-11-25 03:04:05Z"

}  // namespace split
