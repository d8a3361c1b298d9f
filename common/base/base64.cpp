#include "base/base64.h"

#include <cstring>

namespace split {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

void Base64::add(Bytes bytes) {
  for (const std::byte byte : bytes) {
    bits_ = bits_ << 8 | std::to_integer<uint32_t>(byte);
    if (++count_ < 3) continue;
    for (int shift = 18; shift >= 0; shift -= 6) out_ += kDigits[bits_ >> shift & 63];
    bits_ = 0;
    count_ = 0;
  }
}

void Base64::finish() {
  if (count_ == 0) return;
  bits_ <<= 8 * (3 - count_);
  for (int i = 0; i < 4; ++i) {
    out_ += i <= count_ ? kDigits[bits_ >> (18 - 6 * i) & 63] : '=';
  }
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;  // bits that are not in a byte yet
  for (const char c : text) {
    const char* digit = c == '\0' ? nullptr : std::strchr(kDigits, c);
    if (digit == nullptr) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit - kDigits);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  if (count == 6) return std::nullopt;
  return out;
}

}  // namespace split
