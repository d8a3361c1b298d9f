// Numbers from text by the C library's functions, as the C++ library reads integers alone. They
// take more than std::from_chars does, so the text is looked at first.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/bytes.h"

namespace split {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Where the number ends that begins here; `begin`: there is none.
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

}  // namespace

std::from_chars_result parse_real(const char* begin, const char* end, double& value) {
  return read(begin, end, value, std::strtod);
}
std::from_chars_result parse_real(const char* begin, const char* end, float& value) {
  return read(begin, end, value, std::strtof);
}

}  // namespace split
