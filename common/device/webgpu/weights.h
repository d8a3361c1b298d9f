// Matrices as WebGPU's products read them: rows of K numbers, one a column of the product.
//   F32, F16, BF16  rows of whole chunks of 8 numbers, zeros behind K
//   in blocks       numbers in order, of Q8_0 and Q6_K signed bytes, of Q4_0 and Q4_K nibbles, and
//                   scales apart: of Q8_0 and Q4_0 a float for each block of 32; of Q6_K and Q4_K
//                   five words for each 256: the half d, above it dmin; then of Q6_K 16 signed
//                   bytes, of Q4_K for each 32 a byte s and a byte m
#pragma once

#include <vector>

#include "tensor/shape.h"

namespace split::webgpu {

struct Matrix {
  std::vector<uint32_t> numbers, scales;
};

// Packs a matrix [M, K], or if not `transposed` [K, M], which is in F32, F16 or BF16.
Matrix packed(const TensorView& matrix, bool transposed);

}  // namespace split::webgpu
