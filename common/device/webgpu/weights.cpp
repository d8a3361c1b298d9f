#include "device/webgpu/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/types.h"

namespace split::webgpu {
namespace {

constexpr size_t kChunk = 8;

// Columns become rows, in squares that a cache holds.
template <typename Number>
void turn(const std::byte* from, std::byte* to, size_t rows, size_t inner, size_t stride) {
  constexpr size_t kSquare = 32;
  for (size_t k0 = 0; k0 < inner; k0 += kSquare) {
    for (size_t m0 = 0; m0 < rows; m0 += kSquare) {
      for (size_t k = k0; k < std::min(inner, k0 + kSquare); ++k) {
        for (size_t m = m0; m < std::min(rows, m0 + kSquare); ++m) {
          Number number;  // perhaps at an odd place
          std::memcpy(&number, from + (k * rows + m) * sizeof number, sizeof number);
          std::memcpy(to + (m * stride + k) * sizeof number, &number, sizeof number);
        }
      }
    }
  }
}

Matrix floats(const TensorView& matrix, bool transposed) {
  const size_t size = dtype_size(matrix.dtype);
  const auto rows = static_cast<size_t>(matrix.dims[transposed ? 0 : 1]);
  const auto inner = static_cast<size_t>(matrix.dims[transposed ? 1 : 0]);
  const size_t stride = (inner + kChunk - 1) / kChunk * kChunk;
  Matrix made;
  made.numbers.resize(rows * stride * size / sizeof(uint32_t));
  auto* const out = reinterpret_cast<std::byte*>(made.numbers.data());
  const std::byte* const from = matrix.bytes.data();
  if (transposed) {
    for (size_t m = 0; m < rows; ++m) {
      std::memcpy(out + m * stride * size, from + m * inner * size, inner * size);
    }
  } else if (size == sizeof(uint32_t)) {
    turn<uint32_t>(from, out, rows, inner, stride);
  } else {
    turn<uint16_t>(from, out, rows, inner, stride);
  }
  return made;
}

// Nibbles in order, from the layout of Q4_0's blocks.
void push_nibbles(std::vector<uint32_t>& words, const uint8_t* q) {
  for (size_t word = 0; word < 4; ++word) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 8; ++i) {
      const size_t value = word * 8 + i;
      const uint32_t nibble = value < 16 ? q[value] & 15u : q[value - 16] >> 4;
      bits |= nibble << (4 * i);
    }
    words.push_back(bits);
  }
}
void push_bytes(std::vector<uint32_t>& words, const int8_t* q) {
  for (size_t i = 0; i < kBlock; i += 4) {
    uint32_t bits = 0;
    std::memcpy(&bits, q + i, sizeof bits);
    words.push_back(bits);
  }
}

void push_block(Matrix& made, DType dtype, const std::byte* block) {
  if (dtype == DType::kQ8_0) {
    BlockQ8 q;
    std::memcpy(&q, block, sizeof q);
    push_bytes(made.numbers, q.q);
    made.scales.push_back(std::bit_cast<uint32_t>(f16_to_f32(q.d)));
  } else {
    BlockQ4 q;
    std::memcpy(&q, block, sizeof q);
    push_nibbles(made.numbers, q.q);
    made.scales.push_back(std::bit_cast<uint32_t>(f16_to_f32(q.d)));
  }
}

void push_super_block(Matrix& made, DType dtype, const std::byte* block) {
  constexpr size_t kGroups = 8;
  uint8_t factors[2 * kGroups];
  uint32_t halves = 0;
  for (size_t g = 0; g < kGroups; ++g) {
    if (dtype == DType::kQ4_K) {
      const GroupQ4K group = group_q4_k(block, g);
      push_nibbles(made.numbers, group.q);
      factors[2 * g] = group.scale;
      factors[2 * g + 1] = group.minimum;
      halves = group.d | uint32_t{group.dmin} << 16;
    } else {
      const GroupQ6K group = group_q6_k(block, g);
      push_bytes(made.numbers, group.q);
      std::memcpy(factors + 2 * g, group.scales, 2);
      halves = group.d;
    }
  }
  made.scales.push_back(halves);
  for (size_t i = 0; i < sizeof factors; i += 4) {
    uint32_t bits = 0;
    std::memcpy(&bits, factors + i, sizeof bits);
    made.scales.push_back(bits);
  }
}

}  // namespace

Matrix packed(const TensorView& matrix, bool transposed) {
  if (!is_quantised(matrix.dtype)) return floats(matrix, transposed);
  CHECK(transposed);
  Matrix made;
  const bool k_quant = is_k_quant(matrix.dtype);
  const size_t block = block_bytes(matrix.dtype);
  CHECK(matrix.bytes.size() % block == 0);
  for (size_t at = 0; at < matrix.bytes.size(); at += block) {
    if (k_quant) {
      push_super_block(made, matrix.dtype, matrix.bytes.data() + at);
    } else {
      push_block(made, matrix.dtype, matrix.bytes.data() + at);
    }
  }
  return made;
}

}  // namespace split::webgpu
