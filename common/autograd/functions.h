// Tensors of 0 to 8 axes: views, reductions over any axes, comparisons and what is made of them.
// All but the first part are functions of some lines over few primitives, and have no gradient
// code. Shapes are checked here, at the caller's line. Not for the graphs of a step, whose rows
// have no size yet: these functions refuse them.
#pragma once

#include <span>
#include <vector>

#include "tensor/tensor.h"
#include "tensor/types.h"

namespace split {

using Axes = std::vector<int64_t>;  // from 0, or from the end as -1 and below

// --- Primitives

// One size may be -1: what is left.
Tensor reshape(const Tensor& x, Dims dims);
// Axis i of the result is axis order[i].
Tensor permute(const Tensor& x, const Axes& order);
// Axes of size 1 repeated, and new ones in front; -1 keeps a size.
Tensor expand(const Tensor& x, Dims dims);
// Elements [start, end) of an axis with a step, clipped as Python does; a negative step is for
// flip() alone.
Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
// `before` and `behind` elements of `value` around each axis. Negative ones cut.
Tensor pad(const Tensor& x, const Dims& before, const Dims& behind, float value = 0);
Tensor flip(const Tensor& x, const Axes& axes);
Tensor detach(const Tensor& x);
// [n]: 0, 1, 2 ... in F32 (exact up to 2^24), I32 or I64.
Tensor iota(int64_t n, DType dtype = DType::kF32);
// Over axes, which stay as 1 where they are kept; no axes are all. Sums and products of whole
// numbers are I64.
Tensor reduce(Op op, const Tensor& x, const Axes& axes, bool keep = false);
// x where c is not 0, else z.
Tensor select(const Tensor& c, const Tensor& x, const Tensor& z);
Tensor compare(Op op, const Tensor& x, const Tensor& z);  // true or false
// Rows of a table [N, ...] by an index of any shape, I32, I64 or whole numbers in F32 -> index's
// shape, then [...]. The other way rows of one index are joined by a reduction, which begins with
// its neutral element: index's shape, then [...] -> [n, ...].
Tensor take(const Tensor& table, const Tensor& index);
Tensor put(Op op, const Tensor& rows, const Tensor& index, int64_t n);
inline Tensor put_add(const Tensor& rows, const Tensor& index, int64_t n) {
  return put(Op::k_reduce_sum, rows, index, n);
}
// The reduction of elements up to each along an axis.
Tensor scan(Op op, const Tensor& x, int64_t axis);
// Where the elements along an axis stood before they were sorted, I64: equal ones in order, NaN as
// the largest.
Tensor order(const Tensor& x, int64_t axis, bool descending = false);
// An axis of n elements as windows of `size`, `step` apart, whose elements are `dilation` apart;
// the last axis is what is in one. The other way elements are added up where windows overlap.
Tensor windows(const Tensor& x, int64_t axis, int64_t size, int64_t step, int64_t dilation = 1);
Tensor add_windows(const Tensor& windows, int64_t axis, int64_t n, int64_t step,
                   int64_t dilation = 1);

#define UNARY(name, ...) \
  inline Tensor name(const Tensor& x) { return unary(Op::k_##name, x); }
#define BINARY(name, ...) \
  inline Tensor name(const Tensor& x, const Tensor& z) { return binary(Op::k_##name, x, z); }
#define WHOLE_UNARY UNARY
#define WHOLE_BINARY BINARY
#include "tensor/library.def"

inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator==(const Tensor& x, const Tensor& z) { return compare(Op::k_equal, x, z); }
inline Tensor operator<(const Tensor& x, const Tensor& z) { return compare(Op::k_less, x, z); }
inline Tensor operator>(const Tensor& x, const Tensor& z) { return compare(Op::k_less, z, x); }
inline Tensor operator<=(const Tensor& x, const Tensor& z) {
  return compare(Op::k_less_equal, x, z);
}
inline Tensor operator>=(const Tensor& x, const Tensor& z) {
  return compare(Op::k_less_equal, z, x);
}

// The axis from 0; throws Error(kShape) where there is none.
size_t axis_of(const Dims& dims, int64_t axis, std::string_view where);
int64_t count_of(const Dims& dims);

// `function` of tensors in F32, rounded to their common type where that is a half: what is made of
// several ops is rounded once, as one op is. Whole numbers become F32.
template <typename Function, typename... Tensors>
Tensor in_floats(const Function& function, const Tensors&... tensors) {
  const DType type = promoted(std::vector<Tensor>{tensors...});
  const Tensor result = function(cast(tensors, DType::kF32)...);
  return is_half(type) ? cast(result, type) : result;
}

// The rows of these names take a NaN for nothing, and log gives inf from 3.4e38 on; PyTorch does
// not.
Tensor maximum_or_nan(const Tensor& x, const Tensor& z);
Tensor minimum_or_nan(const Tensor& x, const Tensor& z);
Tensor natural_log(const Tensor& x);

// --- Views

Tensor transpose(const Tensor& x, int64_t axis, int64_t other);
Tensor squeeze(const Tensor& x, int64_t axis);
Tensor unsqueeze(const Tensor& x, int64_t axis);
Tensor flatten(const Tensor& x, int64_t first = 0, int64_t last = -1);
Tensor concatenate(std::span<const Tensor> parts, int64_t axis);
Tensor stack(const std::vector<Tensor>& parts, int64_t axis);
Tensor roll(const Tensor& x, int64_t shift, int64_t axis);
Tensor repeat(const Tensor& x, const Dims& times);
// True where column <= row + diagonal: [rows, columns].
Tensor lower_triangle(int64_t rows, int64_t columns, int64_t diagonal);
// A tensor summed to a shape that broadcasts to its own.
Tensor sum_to(const Tensor& x, const Dims& dims);

// --- Reductions: of no axes over all of them

Tensor sum(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor amax(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor amin(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor any(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor all(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor count_nonzero(const Tensor& x, const Axes& axes = {});
Tensor nansum(const Tensor& x, const Axes& axes = {}, bool keep = false);
Tensor nanmean(const Tensor& x, const Axes& axes = {}, bool keep = false);
// The mean of squared distances from the mean, by n - correction.
Tensor variance(const Tensor& x, const Axes& axes, float correction, bool keep = false);
// (sum |x|^p)^(1 / p); of infinite p the largest or smallest, of 0 how many are not 0.
Tensor norm(const Tensor& x, double p = 2, const Axes& axes = {}, bool keep = false);
Tensor logsumexp(const Tensor& x, const Axes& axes, bool keep = false);
Tensor softmax(const Tensor& x, int64_t axis);
Tensor log_softmax(const Tensor& x, int64_t axis);

// --- Layers and losses

// x W + b with W [outputs, inputs], as torch.nn.functional.linear has it.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor* bias = nullptr);
// (x - mean) / sqrt(variance + eps) over axes.
Tensor normalise(const Tensor& x, const Axes& axes, float eps);
// x / sqrt(mean x^2 + eps) over axes.
Tensor rms_normalise(const Tensor& x, const Axes& axes, float eps);
// softmax(cap(q k^T scale) + what `seen` hides) v: q [..., R, D], k and v [..., K, D]. `seen`: true
// where a row sees a key, or numbers that are added; none sees all. cap c > 0: scores become
// c tanh(score / c).
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, float scale, const Tensor* seen,
              float cap = 0);
// [index's shape, n] of true and false.
Tensor one_hot(const Tensor& index, int64_t n);
// Elements of x along `axis` by an index that has x's axes (torch.gather).
Tensor gather_along(const Tensor& x, int64_t axis, const Tensor& index);
// Minus the log of softmax(logits [..., V]) at targets [...].
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);

}  // namespace split
