#include <algorithm>
#include <cstring>

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/transpose16.h"
#include "tensor/blocks.h"

namespace split {
namespace {

constexpr size_t kLanes = 16;  // columns of a tile

// Places one step of one column: its numbers, k = 0 .. kBlock - 1, in the kernels' order.
void place_bf16(const uint16_t* q, size_t column, std::byte* numbers) {
  std::byte* const at =
      numbers + column / kLanes * kLanes * kBlock * sizeof *q + column % kLanes * 2 * sizeof *q;
  for (size_t p = 0; p < kBlock / 2; ++p) {
    std::memcpy(at + p * kLanes * 2 * sizeof *q, q + 2 * p, 2 * sizeof *q);
  }
}
// Places sixteen columns: two squares of bytes, transposed.
void place_q8(const std::byte* const (&q)[kLanes], std::byte* numbers) {
  using Row = uint8_t __attribute__((vector_size(kLanes)));
  for (size_t half = 0; half < kBlock; half += kLanes, numbers += kLanes * kLanes) {
    Row rows[kLanes];
    for (size_t c = 0; c < kLanes; ++c) std::memcpy(&rows[c], q[c] + half, sizeof rows[c]);
    transpose16(rows);
    std::memcpy(numbers, rows, sizeof rows);
  }
}
// Eight numbers, the low halves of bytes, as a word of Q4_0.
uint32_t word_of(uint64_t bytes) {
  const auto four = [](uint64_t x) {  // the bytes 0, 2, 4, 6
    x &= 0x000f000f000f000f;
    return static_cast<uint32_t>((x | x >> 12 | x >> 24 | x >> 36) & 0xffff);
  };
  return four(bytes) | four(bytes >> 8) << 16;
}
// Number k of a block of Q4_0, plus 8.
std::byte nibble(const std::byte* q, size_t k) {
  const std::byte both = q[k % (kBlock / 2)];
  return k < kBlock / 2 ? both & std::byte{15} : both >> 4;
}
void place_q4(const std::byte* q, size_t column, std::byte* numbers) {
  std::byte* const at =
      numbers + column / kLanes * kLanes * kBlock / 2 + column % kLanes * sizeof(uint32_t);
  for (size_t g = 0; g < kBlock / 8; ++g) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, q + g % 2 * sizeof bytes, sizeof bytes);
    const uint32_t word = word_of(g < 2 ? bytes : bytes >> 4);
    std::memcpy(at + g * kLanes * sizeof word, &word, sizeof word);
  }
}

// Places numbers of Q8_0 for rows in int8, four k together.
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

// A step of a strip: the blocks of its columns, `stride` bytes apart.
void pack_blocks(const std::byte* blocks, size_t stride, size_t columns, DType dtype, bool fours,
                 std::byte* to) {
  constexpr size_t kScale = sizeof(uint16_t);
  std::byte* const numbers = to + step_scales(dtype);
  for (size_t c = 0; c < columns; ++c) std::memcpy(to + c * kScale, blocks + c * stride, kScale);
  const std::byte* const first = blocks + kScale;
  if (dtype == DType::kQ8_0 && !fours) {
    static constexpr std::byte kZeros[kBlock] = {};
    for (size_t c = 0; c < kStripColumns; c += kLanes) {
      const std::byte* q[kLanes];
      for (size_t i = 0; i < kLanes; ++i)
        q[i] = c + i < columns ? first + (c + i) * stride : kZeros;
      place_q8(q, numbers + c * kBlock);
    }
    return;
  }
  const auto place = dtype == DType::kQ8_0 ? place_fours_q8 : fours ? place_fours_q4 : place_q4;
  for (size_t c = 0; c < columns; ++c) place(first + c * stride, c, numbers);
}

// Packs a step of a strip in super-blocks: their group `s % 8`, `stride` bytes apart.
void pack_k_step(const std::byte* w, size_t stride, size_t s, size_t columns, DType dtype,
                 bool fours, std::byte* to) {
  constexpr size_t kGroups = kSuperBlock / kBlock, kHalves = kStripColumns * sizeof(uint16_t);
  std::byte* const numbers = to + step_scales(dtype);
  const std::byte* block = w + s / kGroups * block_bytes(dtype);
  std::byte q[kStripColumns][kBlock] = {};
  for (size_t c = 0; c < columns; ++c, block += stride) {
    const size_t half = c * sizeof(uint16_t);
    if (dtype == DType::kQ4_K) {
      const GroupQ4K group = group_q4_k(block, s % kGroups);
      std::memcpy(to + half, &group.d, sizeof group.d);
      std::memcpy(to + kHalves + half, &group.dmin, sizeof group.dmin);
      to[2 * kHalves + c] = std::byte{group.scale};
      to[2 * kHalves + kStripColumns + c] = std::byte{group.minimum};
      std::memcpy(q[c], group.q, sizeof group.q);
      (fours ? place_fours_q4 : place_q4)(q[c], c, numbers);
      continue;
    }
    const GroupQ6K group = group_q6_k(block, s % kGroups);
    std::memcpy(to + half, &group.d, sizeof group.d);
    std::memcpy(to + kHalves + c, &group.scales[0], 1);
    std::memcpy(to + kHalves + kStripColumns + c, &group.scales[1], 1);
    std::memcpy(q[c], group.q, sizeof group.q);
    if (!fours) continue;
    for (std::byte& number : q[c])
      number = std::byte((std::to_integer<unsigned>(number) + 32) & 63);
    place_fours_q8(q[c], c, numbers);
  }
  if (dtype == DType::kQ4_K || fours) return;
  for (size_t c = 0; c < kStripColumns; c += kLanes) {
    const std::byte* rows[kLanes];
    for (size_t i = 0; i < kLanes; ++i) rows[i] = q[c + i];
    place_q8(rows, numbers + c * kBlock);
  }
}

}  // namespace

void pack_strip(const std::byte* w, DType dtype, Rounding rounding, bool transposed, size_t inner,
                size_t width, size_t strip, std::byte* packed) {
  const size_t steps = steps_of(inner), each = step_bytes(dtype);
  const size_t first = strip * kStripColumns, columns = std::min(kStripColumns, width - first);
  std::byte* to = packed + strip * steps * each;
  if (columns < kStripColumns) std::memset(to, 0, steps * each);
  for (size_t s = 0; s < steps; ++s, to += each) {
    if (is_k_quant(dtype)) {
      const size_t stride = row_bytes(dtype, inner);
      pack_k_step(w + first * stride, stride, s, columns, dtype, rounding == Rounding::kInt8, to);
      continue;
    }
    if (dtype != DType::kBF16) {
      const size_t block = block_bytes(dtype), stride = steps * block;
      pack_blocks(w + first * stride + s * block, stride, columns, dtype,
                  rounding == Rounding::kInt8, to);
      continue;
    }
    const size_t count = std::min(kBlock, inner - s * kBlock);
    for (size_t c = 0; c < columns; ++c) {
      uint16_t q[kBlock] = {};
      if (transposed) {
        std::memcpy(q, w + ((first + c) * inner + s * kBlock) * sizeof *q, count * sizeof *q);
      } else {
        for (size_t k = 0; k < count; ++k) {
          std::memcpy(q + k, w + ((s * kBlock + k) * width + first + c) * sizeof *q, sizeof *q);
        }
      }
      place_bf16(q, c, to);
    }
  }
}

}  // namespace split
