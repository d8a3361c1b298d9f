// Kernels of a step's rows as compositions of other ops, over windows: texts of equal length whose
// positions begin at 0, row b * length + t of which is position t of window b. Training computes
// by them, and tests compare devices' kernels with them.
#pragma once

#include <functional>

#include "tensor/tensor.h"

namespace split {

struct Windows {
  int64_t batch = 1, length = 1;
  int64_t rows() const { return batch * length; }
};

// Makes what a rotation or an attention does of its inputs, which `input` gives by their index, but
// for caches: an attention sees the keys of its own window. Throws Error(kShape) for another op,
// and for windows that are longer than a table.
Tensor composed(const Node& kernel, const Windows& windows,
                const std::function<Tensor(size_t)>& input);
// The rows of a table for the positions of one window. Throws Error(kShape) for too few.
Tensor first_rows(const Tensor& table, const Windows& windows);

}  // namespace split
