#include "base/bytes.h"

namespace split {

std::from_chars_result parse_real(const char* begin, const char* end, double& value) {
  return std::from_chars(begin, end, value);
}
std::from_chars_result parse_real(const char* begin, const char* end, float& value) {
  return std::from_chars(begin, end, value);
}

}  // namespace split
