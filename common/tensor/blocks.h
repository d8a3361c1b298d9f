// The blocks of quantised matrices, in ggml's layout: kBlock values along a row share one
// half-precision scale d.
//   Q8_0, 34 bytes: d, then 32 int8 q; a value is q d.
//   Q4_0, 18 bytes: d, then 16 bytes, byte j with element j in its low nibble and element j + 16 in
//   its high one; a value is (q - 8) d.
//   Q4_K, 144 bytes, 256 values: halves d and dmin, eight scales s and minima m of six bits (12
//   bytes), then 128 bytes, of which 32 have two groups of 32 values, the second in the high
//   nibbles; a value is q d s - dmin m of its group.
//   Q5_K, 176 bytes: Q4_K's with 32 bytes of fifth bits before the nibbles: value l of group i has
//   bit i of byte l.
//   Q6_K, 210 bytes, 256 values: the low four bits (128 bytes), the high two (64), 16 signed scales
//   s, a half d; a value is (q - 32) d s of its group of 16. In each half of 128 values, quarter
//   j's value l has its low bits in byte 32 (j % 2) + l, nibble j / 2, its high ones in byte l,
//   bits 2 j.
// A matrix [rows, K] has outputs as its rows; a row is ceil(K / 32) blocks, the last filled up with
// zeros. This is how files and the wire have it; a device may reorder it when it uploads. q d fits
// a float's mantissa, so reading a matrix in Q8_0 or Q4_0 rounds nothing.
#pragma once

#include "tensor/shape.h"

namespace split {

struct BlockQ8 {
  uint16_t d;
  int8_t q[kBlock];
};
struct BlockQ4 {
  uint16_t d;
  uint8_t q[kBlock / 2];
};
static_assert(sizeof(BlockQ8) == 34 && sizeof(BlockQ4) == 18);

// Blocks of a row of K elements.
inline size_t blocks_of(int64_t inner) {
  return (static_cast<size_t>(inner) + kBlock - 1) / kBlock;
}

// A group of 32 of the 256 values of a block of Q4_K: nibbles like Q4_0's after its scale (value j
// in the low nibble of byte j, value j + 16 in the high one), and its scale and minimum.
struct GroupQ4K {
  uint8_t q[kBlock / 2];
  uint16_t d, dmin;
  uint8_t scale, minimum;
};
GroupQ4K group_q4_k(const std::byte* block, size_t group);
// Values [8 eight, 8 eight + 8) of such a group, a byte each.
uint64_t eight_of_q4_k(const std::byte* block, size_t group, size_t eight);
// A group of Q6_K: numbers less 32, and a scale for each 16.
struct GroupQ6K {
  int8_t q[kBlock];
  uint16_t d;
  int8_t scales[2];
};
GroupQ6K group_q6_k(const std::byte* block, size_t group);

// The `count` values of one row.
void dequantise_row(DType dtype, const std::byte* row, size_t count, float* out);
// A quantised matrix as F32.
OwnedTensor dequantised(const TensorView& matrix);
// Whether no scale of a quantised matrix is infinite or NaN; then no value is.
bool scales_are_finite(const TensorView& matrix);
// Whether no value of a tensor is infinite or NaN.
bool values_are_finite(const TensorView& tensor);

}  // namespace split
