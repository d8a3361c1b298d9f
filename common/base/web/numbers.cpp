// Numbers from text by the C library's functions, as the C++ library reads integers alone. They
// accept more than std::from_chars does, so the text is checked first.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/bytes.h"

namespace split {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the end of the number that begins here; `begin`: there is none.
const char* end_of_number(const char* begin, const char* end) {
  const char* at = begin;
  if (at < end && *at == '-') ++at;
  const char* const whole = at;
  at = std::find_if_not(at, end, is_digit);
  auto digits = at - whole;
  if (at < end && *at == '.') {
    const char* const fraction = at + 1;
    at = std::find_if_not(fraction, end, is_digit);
    digits += at - fraction;
    if (digits == 0) return begin;
  }
  if (digits == 0) return begin;
  if (at == end || (*at != 'e' && *at != 'E')) return at;
  const char* power = at + 1;
  if (power < end && (*power == '-' || *power == '+')) ++power;
  return power < end && is_digit(*power) ? std::find_if_not(power, end, is_digit) : at;
}

template <typename Number>
std::from_chars_result read(const char* begin, const char* end, Number& value,
                            Number (*library)(const char*, char**)) {
  const char* const stop = end_of_number(begin, end);
  if (stop == begin) return {begin, std::errc::invalid_argument};
  const std::string text(begin, stop);
  errno = 0;
  const Number read = library(text.c_str(), nullptr);
  const bool subnormal = errno == ERANGE && read != 0 && read < 1 && read > -1;
  if (errno == ERANGE && !subnormal) return {stop, std::errc::result_out_of_range};
  value = read;
  return {stop, std::errc()};
}

// The shortest digits that read back as the same number: `digits[0]` is the one before the point,
// times 10^exponent.
struct Decimal {
  std::string digits;
  int exponent = 0;
};
template <typename Number>
Decimal decimal_of(Number value, Number (*library)(const char*, char**)) {
  using Limits = std::numeric_limits<Number>;
  // digits10 digits always read back as they were, but for subnormal numbers; max_digits10 digits
  // identify every number.
  const int safe = value < Limits::min() ? 1 : Limits::digits10, all_of_them = Limits::max_digits10;
  char text[40];
  for (int count = safe;; ++count) {
    std::snprintf(text, sizeof text, "%.*e", count - 1, static_cast<double>(value));
    if (count >= all_of_them || library(text, nullptr) == value) break;
  }
  const std::string all(text);
  const size_t e = all.find('e');
  Decimal decimal{all.substr(0, 1), std::atoi(text + e + 1)};
  if (e > 2) decimal.digits += all.substr(2, e - 2);
  decimal.digits.erase(std::max<size_t>(decimal.digits.find_last_not_of('0') + 1, 1));
  return decimal;
}

std::string fixed_text(const Decimal& decimal, double value) {
  const auto& [digits, exponent] = decimal;
  if (exponent < 0) {
    return "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() > whole) return digits.substr(0, whole) + "." + digits.substr(whole);
  std::string text(400, '\0');  // a whole number has all of its digits, not zeros
  text.resize(static_cast<size_t>(std::snprintf(text.data(), text.size(), "%.0f", value)));
  return text;
}

std::string scientific_text(const Decimal& decimal) {
  std::string text = decimal.digits.substr(0, 1);
  if (decimal.digits.size() > 1) text += "." + decimal.digits.substr(1);
  const std::string power = std::to_string(std::abs(decimal.exponent));
  return text + (decimal.exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
}

std::to_chars_result put(char* begin, char* end, const std::string& text) {
  if (static_cast<size_t>(end - begin) < text.size()) return {end, std::errc::value_too_large};
  return {std::copy(text.begin(), text.end(), begin), std::errc()};
}

// Like std::to_chars: the requested form, or the shorter of the two.
template <typename Number>
std::to_chars_result write(char* begin, char* end, Number value,
                           Number (*library)(const char*, char**),
                           std::optional<std::chars_format> format = {}) {
  const std::string sign = std::signbit(value) ? "-" : "";
  const Number size = std::abs(value);
  if (std::isnan(value)) return put(begin, end, sign + "nan");
  if (std::isinf(value)) return put(begin, end, sign + "inf");
  const Decimal decimal = decimal_of(size, library);
  const std::string scientific = scientific_text(decimal);
  // The plain form of a number with many zeros is longer.
  const bool plain = format ? *format == std::chars_format::fixed : std::abs(decimal.exponent) < 40;
  if (!plain) return put(begin, end, sign + scientific);
  const std::string fixed = fixed_text(decimal, static_cast<double>(size));
  return put(begin, end, sign + (format || fixed.size() <= scientific.size() ? fixed : scientific));
}

}  // namespace

std::from_chars_result parse_real(const char* begin, const char* end, double& value) {
  return read(begin, end, value, std::strtod);
}
std::from_chars_result parse_real(const char* begin, const char* end, float& value) {
  return read(begin, end, value, std::strtof);
}

}  // namespace split

// Replaces the library's own.
_LIBCPP_BEGIN_NAMESPACE_STD
to_chars_result to_chars(char* begin, char* end, double value) {
  return split::write(begin, end, value, std::strtod);
}
to_chars_result to_chars(char* begin, char* end, float value) {
  return split::write(begin, end, value, std::strtof);
}
to_chars_result to_chars(char* begin, char* end, double value, chars_format format) {
  return split::write(begin, end, value, std::strtod, format);
}
to_chars_result to_chars(char* begin, char* end, double value, chars_format format, int precision) {
  char text[400];
  const char* const words = format == chars_format::general ? "%.*g"
                            : format == chars_format::fixed ? "%.*f"
                                                            : "%.*e";
  std::snprintf(text, sizeof text, words, precision, value);
  return split::put(begin, end, text);
}
_LIBCPP_END_NAMESPACE_STD
