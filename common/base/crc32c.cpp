#include "base/crc32c.h"

namespace split {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: byte b followed by k zero bytes, so that eight bytes are looked up at once. Made at
// the start, not by the compiler: these 8 KiB would not compress on their way to a tab.
Tables make_tables() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // bits in reverse
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

}  // namespace

uint32_t crc32c(Bytes bytes, uint32_t so_far) {
  static const Tables kTables = make_tables();
  uint32_t value = ~so_far;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const uint64_t word = load_le64(bytes.data()) ^ value;
    value = 0;
    for (size_t i = 0; i < 8; ++i) value ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (const std::byte byte : bytes) {
    value = (value >> 8) ^ kTables[0][(value ^ static_cast<uint32_t>(byte)) & 0xff];
  }
  return ~value;
}

}  // namespace split
