// Rates and times as people write them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace split::link {

// "20Mbit", "1.5 Gbit" or "56kbit" as bits a second: in 1 .. 10^12. None for anything else.
std::optional<uint64_t> parse_rate(std::string_view text);
// "30ms", "0.2s" or "500us": in 0 .. 60 s. None for anything else.
std::optional<std::chrono::microseconds> parse_time(std::string_view text);

std::string rate_text(uint64_t bits_per_s);  // "20 Mbit/s"; "no limit" for 0
std::string time_text(std::chrono::microseconds time);

}  // namespace split::link
