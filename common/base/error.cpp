#include "base/error.h"

#include <charconv>

namespace split {
namespace {

template <typename T, typename... Format>
void append_number(std::string& out, T value, Format... format) {
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value, format...).ptr);
}

}  // namespace

void append(std::string& out, std::string_view text) { out.append(text); }
void append(std::string& out, char c) { out += c; }
void append(std::string& out, long long value) { append_number(out, value); }
void append(std::string& out, unsigned long long value) { append_number(out, value); }
void append(std::string& out, Hex hex) {
  const size_t start = out.size();
  append_number(out, hex.value, 16);
  for (size_t i = start; i < out.size(); ++i) {
    if (out[i] >= 'a') out[i] = static_cast<char>(out[i] - 'a' + 'A');
  }
}
void append(std::string& out, double value) {
  append_number(out, value, std::chars_format::general, 6);
}

void check_failed(const char* file, int line, const char* condition) {
  throw std::logic_error(cat("bug: ", file, ":", line, ": CHECK(", condition, ") failed"));
}

}  // namespace split
