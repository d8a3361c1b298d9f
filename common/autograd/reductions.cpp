#include "autograd/reductions.h"

#include <algorithm>
#include <limits>

#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

int64_t size_of(const Tensor& x, int64_t axis, std::string_view where) {
  return x.dims()[axis_of(x.dims(), axis, where)];
}

// 0, 1, 2 ... along an axis of x.
Tensor places(const Tensor& x, int64_t axis) {
  Dims along(x.dims().size(), 1);
  const size_t at = axis_of(x.dims(), axis, "axis");
  along[at] = x.dims()[at];
  return reshape(iota(x.dims()[at], DType::kI32), along);
}

Tensor first_of(Op op, const Tensor& x, int64_t axis, bool keep) {
  const Tensor best = detach(reduce(op, x, {axis}, true));
  const Tensor hit = is_floating(x.dtype()) ? logical_or(x == best, isnan(x)) : x == best;
  const auto n = static_cast<int32_t>(size_of(x, axis, "argmax"));
  return cast(reduce(Op::k_reduce_min, select(hit, places(x, axis), n), {axis}, keep), DType::kI64);
}

Found found(const Tensor& x, int64_t axis, const Tensor& kept, bool keep) {
  const Tensor values = gather_along(x, axis, kept);
  return {keep ? values : squeeze(values, axis), keep ? kept : squeeze(kept, axis)};
}

}  // namespace

Tensor argmax(const Tensor& x, int64_t axis, bool keep) {
  return first_of(Op::k_reduce_amax, x, axis, keep);
}
Tensor argmin(const Tensor& x, int64_t axis, bool keep) {
  return first_of(Op::k_reduce_amin, x, axis, keep);
}
Found max_along(const Tensor& x, int64_t axis, bool keep) {
  return found(x, axis, argmax(x, axis, true), keep);
}
Found min_along(const Tensor& x, int64_t axis, bool keep) {
  return found(x, axis, argmin(x, axis, true), keep);
}
Found median(const Tensor& x, int64_t axis, bool keep) {
  const int64_t n = size_of(x, axis, "median");
  if (n == 0) refuse("median", "an element", {&x.dims()});
  Tensor middle = slice(order(x, axis), axis, (n - 1) / 2, (n - 1) / 2 + 1);
  if (is_floating(x.dtype())) {
    middle = select(any(isnan(x), {axis}, true), argmax(x, axis, true), middle);
  }
  return found(x, axis, middle, keep);
}
Found sort(const Tensor& x, int64_t axis, bool descending) {
  const Tensor from = order(x, axis, descending);
  return {x.dims().empty() ? x : gather_along(x, axis, from), from};
}
Found topk(const Tensor& x, int64_t k, int64_t axis, bool largest) {
  const int64_t n = size_of(x, axis, "topk");
  if (k < 0 || k > n) refuse("topk", cat(k, " elements"), {&x.dims()});
  const Tensor first = slice(order(x, axis, largest), axis, 0, k);
  return {gather_along(x, axis, first), first};
}

Tensor cumsum(const Tensor& x, int64_t axis) { return scan(Op::k_reduce_sum, x, axis); }
Tensor cumprod(const Tensor& x, int64_t axis) { return scan(Op::k_reduce_prod, x, axis); }
Tensor logcumsumexp(const Tensor& of, int64_t axis) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor top = detach(reduce(Op::k_reduce_max, x, {axis}, true));
        const Tensor from = select(isinf(top), 0.0f, top);
        return log(cumsum(exp(x - from), axis)) + from;
      },
      of);
}

namespace {

Found best_so_far(Op op, const Tensor& x, int64_t axis) {
  const Tensor best = detach(scan(op, x, axis));
  const Tensor hit = is_floating(x.dtype()) ? logical_or(x == best, isnan(x)) : x == best;
  const Tensor from = scan(Op::k_reduce_max, select(hit, places(x, axis), 0), axis);
  return {gather_along(x, axis, from), cast(from, DType::kI64)};
}

}  // namespace

Found cummax(const Tensor& x, int64_t axis) { return best_so_far(Op::k_reduce_amax, x, axis); }
Found cummin(const Tensor& x, int64_t axis) { return best_so_far(Op::k_reduce_amin, x, axis); }

Tensor bincount(const Tensor& x, int64_t n) {
  return put_add(expand(cast(1, DType::kI64), x.dims()), x, n);
}
Tensor searchsorted(const Tensor& x, const Tensor& z, bool right) {
  if (x.dims().size() != 1) refuse("searchsorted", "sorted numbers [N]", {&x.dims()});
  const Tensor each = unsqueeze(z, -1);
  return sum(right ? x <= each : x < each, {-1});
}

}  // namespace split
