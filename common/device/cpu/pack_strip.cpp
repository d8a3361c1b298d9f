#include <algorithm>
#include <cstring>

#include "device/cpu/kernels.h"
#include "tensor/blocks.h"

namespace split {
namespace {

constexpr size_t kLanes = 16;  // columns of a tile

// One step of one column: its numbers, k = 0 .. kBlock - 1, where the kernels look for them.
void place_bf16(const uint16_t* q, size_t column, std::byte* numbers) {
  std::byte* const at =
      numbers + column / kLanes * kLanes * kBlock * sizeof *q + column % kLanes * 2 * sizeof *q;
  for (size_t p = 0; p < kBlock / 2; ++p) {
    std::memcpy(at + p * kLanes * 2 * sizeof *q, q + 2 * p, 2 * sizeof *q);
  }
}
void place_q8(const std::byte* q, size_t column, std::byte* numbers) {
  std::byte* const at = numbers + column / kLanes * kLanes * kBlock + column % kLanes;
  for (size_t k = 0; k < kBlock; ++k) at[k * kLanes] = q[k];
}
// Number k of a block of Q4_0, plus 8.
std::byte nibble(const std::byte* q, size_t k) {
  const std::byte both = q[k % (kBlock / 2)];
  return k < kBlock / 2 ? both & std::byte{15} : both >> 4;
}
void place_q4(const std::byte* q, size_t column, std::byte* numbers) {
  const auto number = [&](size_t k) { return std::to_integer<uint32_t>(nibble(q, k)); };
  std::byte* const at =
      numbers + column / kLanes * kLanes * kBlock / 2 + column % kLanes * sizeof(uint32_t);
  for (size_t g = 0; g < kBlock / 8; ++g) {
    uint32_t word = 0;
    for (size_t p = 0; p < 4; ++p) {
      word |= number(8 * g + 2 * p) << 4 * p | number(8 * g + 2 * p + 1) << (16 + 4 * p);
    }
    std::memcpy(at + g * kLanes * sizeof word, &word, sizeof word);
  }
}

// The same, for rows in int8.
void place_fours_q8(const std::byte* q, size_t column, std::byte* numbers) {
  std::byte* const at = numbers + column / kLanes * kLanes * kBlock + column % kLanes * 4;
  for (size_t k = 0; k < kBlock; k += 4) std::memcpy(at + k * kLanes, q + k, 4);
}
void place_fours_q4(const std::byte* q, size_t column, std::byte* numbers) {
  std::byte* const at = numbers + column / kLanes * kLanes * kBlock / 2 + column % kLanes * 4;
  for (size_t g = 0; g < kBlock / 8; ++g) {
    for (size_t i = 0; i < 4; ++i) {
      at[g * kLanes * 4 + i] = nibble(q, 8 * g + i) | nibble(q, 8 * g + 4 + i) << 4;
    }
  }
}

}  // namespace

void pack_strip(const std::byte* w, DType dtype, Rounding rounding, bool transposed, size_t inner,
                size_t width, size_t strip, std::byte* packed) {
  const bool fours = rounding == Rounding::kInt8;
  const auto place = dtype == DType::kQ8_0 ? (fours ? place_fours_q8 : place_q8)
                                           : (fours ? place_fours_q4 : place_q4);
  const size_t steps = steps_of(inner), each = step_bytes(dtype);
  const size_t first = strip * kStripColumns, columns = std::min(kStripColumns, width - first);
  std::byte* to = packed + strip * steps * each;
  if (columns < kStripColumns) std::memset(to, 0, steps * each);
  for (size_t s = 0; s < steps; ++s, to += each) {
    std::byte* const numbers = to + step_scales(dtype);
    for (size_t c = 0; c < columns; ++c) {
      if (dtype == DType::kBF16) {
        uint16_t q[kBlock] = {};
        const size_t count = std::min(kBlock, inner - s * kBlock);
        if (transposed) {
          std::memcpy(q, w + ((first + c) * inner + s * kBlock) * sizeof *q, count * sizeof *q);
        } else {
          for (size_t k = 0; k < count; ++k) {
            std::memcpy(q + k, w + ((s * kBlock + k) * width + first + c) * sizeof *q, sizeof *q);
          }
        }
        place_bf16(q, c, numbers);
        continue;
      }
      const std::byte* const block = w + ((first + c) * steps + s) * block_bytes(dtype);
      std::memcpy(to + c * sizeof(uint16_t), block, sizeof(uint16_t));
      place(block + sizeof(uint16_t), c, numbers);
    }
  }
}

}  // namespace split
