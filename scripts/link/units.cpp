#include "scripts/link/units.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace split::link {
namespace {

using Unit = std::pair<std::string_view, double>;

// A number and one of the units behind it.
template <size_t N>
std::optional<double> parse(std::string_view text, const Unit (&units)[N]) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.begin(), text.end(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.begin()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  for (const auto& [name, factor] : units) {
    if (text == name) return number * factor;
  }
  return std::nullopt;
}

// At most three digits behind the point, and no zeros at the end.
std::string number_text(double number) {
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, 3).ptr;
  std::string text(buffer, end);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::optional<uint64_t> parse_rate(std::string_view text) {
  static constexpr Unit kUnits[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
  const auto bits = parse(text, kUnits);
  if (!bits || *bits < 1 || *bits > 1e12) return std::nullopt;
  return static_cast<uint64_t>(std::llround(*bits));
}

std::optional<std::chrono::microseconds> parse_time(std::string_view text) {
  static constexpr Unit kUnits[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  const auto micros = parse(text, kUnits);
  if (!micros || *micros < 0 || *micros > 60e6) return std::nullopt;
  return std::chrono::microseconds(std::llround(*micros));
}

std::string rate_text(uint64_t bits_per_s) {
  if (bits_per_s == 0) return "no limit";
  const auto bits = static_cast<double>(bits_per_s);
  if (bits >= 1e9) return number_text(bits / 1e9) + " Gbit/s";
  if (bits >= 1e6) return number_text(bits / 1e6) + " Mbit/s";
  if (bits >= 1e3) return number_text(bits / 1e3) + " kbit/s";
  return number_text(bits) + " bit/s";
}

std::string time_text(std::chrono::microseconds time) {
  return number_text(static_cast<double>(time.count()) / 1000) + " ms";
}

}  // namespace split::link
