#include "base/bytes.h"

#include <unistd.h>

#include <algorithm>

namespace split {

std::optional<uint64_t> parse_u64(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < low || value > high) {
    return std::nullopt;
  }
  return value;
}

std::string to_hex(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out += kDigits[static_cast<unsigned>(b) >> 4];
    out += kDigits[static_cast<unsigned>(b) & 15];
  }
  return out;
}

bool is_lower_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

void random_bytes(std::span<std::byte> out) {
  constexpr size_t kMost = 256;  // getentropy()'s limit
  for (; !out.empty(); out = out.subspan(std::min(kMost, out.size()))) {
    CHECK(::getentropy(out.data(), std::min(kMost, out.size())) == 0);
  }
}

std::string Sha256::finish_hex() { return to_hex(finish()); }

std::string Sha256::hex_of(Bytes bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.finish_hex();
}

}  // namespace split
