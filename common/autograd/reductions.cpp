#include "autograd/reductions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

float reduced_count(const Tensor& x, const Axes& axes) {
  int64_t n = axes.empty() ? count_of(x.dims()) : 1;
  for (const int64_t axis : axes) n *= x.dims()[axis_of(x.dims(), axis, "mean")];
  return static_cast<float>(n);
}

// The largest, of numbers among which a NaN need not be found.
Tensor top_of(const Tensor& x, const Axes& axes) {
  return detach(reduce(Op::k_reduce_max, x, axes, true));
}

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

Tensor sum(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_sum, x, axes, keep);
}
Tensor prod(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_prod, x, axes, keep);
}
Tensor amax(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_amax, x, axes, keep);
}
Tensor amin(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_amin, x, axes, keep);
}
Tensor any(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_max, cast(x, DType::kBool), axes, keep);
}
Tensor all(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_min, cast(x, DType::kBool), axes, keep);
}
Tensor count_nonzero(const Tensor& x, const Axes& axes) { return sum(cast(x, DType::kBool), axes); }
Tensor nansum(const Tensor& x, const Axes& axes, bool keep) {
  return sum(select(isnan(x), 0, x), axes, keep);
}
Tensor nanmean(const Tensor& of, const Axes& axes, bool keep) {
  return in_floats(
      [&](const Tensor& x) {
        return nansum(x, axes, keep) / sum(cast(x == x, DType::kF32), axes, keep);
      },
      of);
}

Tensor mean(const Tensor& of, const Axes& axes, bool keep) {
  return in_floats([&](const Tensor& x) { return sum(x, axes, keep) / reduced_count(x, axes); },
                   of);
}
Tensor variance(const Tensor& of, const Axes& axes, float correction, bool keep) {
  return in_floats(
      [&](const Tensor& x) {
        return sum(square(x - mean(x, axes, true)), axes, keep) /
               std::max(0.0f, reduced_count(x, axes) - correction);
      },
      of);
}
Tensor norm(const Tensor& of, double p, const Axes& axes, bool keep) {
  return in_floats(
      [&](const Tensor& x) {
        if (std::isinf(p)) return p > 0 ? amax(abs(x), axes, keep) : amin(abs(x), axes, keep);
        if (p == 0) return sum(cast(not_equal(x, 0), DType::kF32), axes, keep);
        if (p == 1) return sum(abs(x), axes, keep);
        const Tensor all = sum(p == 2 ? square(x) : pow(abs(x), static_cast<float>(p)), axes, keep);
        const Tensor none = all == 0.0f, safe = select(none, 1.0f, all);  // its slope is none
        return select(none, 0.0f, p == 2 ? sqrt(safe) : pow(safe, static_cast<float>(1 / p)));
      },
      of);
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_logsumexp, x, axes, keep);
}
Tensor softmax(const Tensor& of, int64_t axis) {
  return in_floats(
      [&](const Tensor& x) {
        if (x.dims().empty()) return x / x;
        const Tensor e = exp(x - top_of(x, {axis}));
        return e / sum(e, {axis}, true);
      },
      of);
}
Tensor log_softmax(const Tensor& of, int64_t axis) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor centred = x - top_of(x, {axis});
        return centred - log(sum(exp(centred), {axis}, true));
      },
      of);
}

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
        const Tensor top = top_of(x, {axis});
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
