// The table's rows as loops over numbers of the types in which they compute: F32 (of library.def;
// those of ops.def are CpuKernels'), I32 and I64. Truth is I32, 0 or 1.
#pragma once

#include <cstddef>

#include "tensor/op.h"
#include "tensor/shape.h"

namespace split::array {

struct RowLoops {
  // x, z and c as the row has them; c is truth.
  using Loop = void (*)(const void* x, const void* z, const void* c, void* out, size_t n);
  // Rows of `inner` numbers to one each, in order.
  using Rows = void (*)(const void* x, size_t inner, size_t rows, void* out);
  ByOp<Loop> pointwise;
  ByOp<Loop> join;    // a reduction's two parts, x the first
  ByOp<Rows> reduce;  // to one number a row
  ByOp<Rows> scan;    // to as many
  ByOp<Rows> start;   // `rows` numbers: the neutral element
  // Where each row's numbers stood before they were sorted, stable; NaN is the largest.
  void (*order)(const void* x, size_t inner, size_t rows, bool descending, int64_t* out);
};
// Null where a row has no body for the type.
const RowLoops& row_loops(DType computing);
// Casts n numbers, each as it is computed with: floats of F16 are rounded.
void cast_loop(const void* from, DType from_type, void* to, DType to_type, size_t n);

}  // namespace split::array
