#include "base/base64.h"

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

}  // namespace split
