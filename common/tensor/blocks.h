// The blocks that quantised matrices are stored in, as ggml lays them out: kBlock values along a
// row share one half-precision scale d.
//   Q8_0, 34 bytes: d, then 32 int8 q; a value is q d.
//   Q4_0, 18 bytes: d, then 16 bytes, byte j with element j in its low nibble and element j + 16 in
//   its high one; a value is (q - 8) d.
// A matrix [rows, K] has outputs as its rows; a row is ceil(K / 32) blocks, the last filled up with
// zeros. This is how files and the wire have it; a device may reorder it when it uploads. q d fits
// a float's mantissa, so reading a quantised matrix rounds nothing.
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

// The `count` values of one row.
void dequantise_row(DType dtype, const std::byte* row, size_t count, float* out);
// The same matrix as F32.
OwnedTensor dequantised(const TensorView& matrix);
// Whether no scale of a quantised matrix is infinite or NaN; then no value is.
bool scales_are_finite(const TensorView& matrix);
// The same of any tensor: none of its values is infinite or NaN.
bool values_are_finite(const TensorView& tensor);

}  // namespace split
