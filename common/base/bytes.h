// Bytes from outside: overflow-safe arithmetic, little-endian loads, numbers, hex, random bytes,
// and SHA-256 (by OpenSSL).
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace split {

using Bytes = std::span<const std::byte>;

inline Bytes as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns a * b, or nullopt if the result does not fit.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline uint64_t load_le64(const std::byte* from) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files and frames are little-endian");
  uint64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Parses a whole decimal number in [low, high]; nullopt for signs, spaces, other characters or
// overflow.
std::optional<uint64_t> parse_u64(std::string_view text, uint64_t low, uint64_t high);

// Reads the number that the text begins with, as std::from_chars does: some libraries have that for
// integers alone.
std::from_chars_result parse_real(const char* begin, const char* end, double& value);
std::from_chars_result parse_real(const char* begin, const char* end, float& value);

// Fills `out` with unpredictable bytes.
void random_bytes(std::span<std::byte> out);

std::string to_hex(Bytes bytes);
// Whether the text is exactly `digits` characters of 0-9a-f.
bool is_lower_hex(std::string_view text, size_t digits);

// Running SHA-256. One thread at a time.
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(Bytes bytes);
  // Ends the sum; the object can only be destroyed or assigned to afterwards.
  Digest finish();
  std::string finish_hex();

  static std::string hex_of(Bytes bytes);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace split
