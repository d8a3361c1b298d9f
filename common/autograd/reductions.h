// Reductions that say where they found what they found, scans and sorting, by PyTorch's names:
// compositions of reductions, scan() and order(), whose values are gathered, so that their
// gradients are that of a gather. Indices are I64.
#pragma once

#include "autograd/functions.h"

namespace split {

struct Found {
  Tensor values, indices;
};

// The first of the largest or smallest along an axis; a NaN is both.
Tensor argmax(const Tensor& x, int64_t axis, bool keep = false);
Tensor argmin(const Tensor& x, int64_t axis, bool keep = false);
Found max_along(const Tensor& x, int64_t axis, bool keep = false);
Found min_along(const Tensor& x, int64_t axis, bool keep = false);
// The lower of two in the middle; NaN where there is one.
Found median(const Tensor& x, int64_t axis, bool keep = false);
Found sort(const Tensor& x, int64_t axis = -1, bool descending = false);
Found topk(const Tensor& x, int64_t k, int64_t axis, bool largest = true);

Tensor cumsum(const Tensor& x, int64_t axis);
Tensor cumprod(const Tensor& x, int64_t axis);
Tensor logcumsumexp(const Tensor& x, int64_t axis);
Found cummax(const Tensor& x, int64_t axis);
Found cummin(const Tensor& x, int64_t axis);

// How often each of 0 to n - 1 is there.
Tensor bincount(const Tensor& x, int64_t n);
// Where z would be put into x [N], which is sorted: before equal ones, or behind them.
Tensor searchsorted(const Tensor& x, const Tensor& z, bool right = false);

}  // namespace split
