#include "autograd/functions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {

// --- Views

Tensor transpose(const Tensor& x, int64_t axis, int64_t other) {
  Axes order(x.dims().size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[axis_of(x.dims(), axis, "transpose")],
            order[axis_of(x.dims(), other, "transpose")]);
  return permute(x, order);
}

Tensor squeeze(const Tensor& x, int64_t axis) {
  const size_t at = axis_of(x.dims(), axis, "squeeze");
  if (x.dims()[at] != 1) return x;
  Dims dims = x.dims();
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
  return reshape(x, dims);
}

Tensor unsqueeze(const Tensor& x, int64_t axis) {
  Dims dims = x.dims();
  dims.push_back(1);
  const size_t at = axis_of(dims, axis, "unsqueeze");
  dims.pop_back();
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), 1);
  return reshape(x, dims);
}

Tensor flatten(const Tensor& x, int64_t first, int64_t last) {
  if (x.dims().empty()) return reshape(x, {1});
  const auto from = static_cast<std::ptrdiff_t>(axis_of(x.dims(), first, "flatten"));
  const auto to = static_cast<std::ptrdiff_t>(axis_of(x.dims(), last, "flatten")) + 1;
  if (from >= to) refuse("flatten", "axes in order", {&x.dims()});
  Dims dims(x.dims().begin(), x.dims().begin() + from);
  dims.push_back(count_of({x.dims().begin() + from, x.dims().begin() + to}));
  dims.insert(dims.end(), x.dims().begin() + to, x.dims().end());
  return reshape(x, dims);
}

// Each part is there where its place is: sums would lose the sign of zero.
Tensor concatenate(std::span<const Tensor> parts, int64_t axis) {
  CHECK(!parts.empty());
  const size_t at = axis_of(parts[0].dims(), axis, "cat");
  int64_t all = 0;
  for (const Tensor& part : parts) {
    Dims same = part.dims();
    if (at < same.size()) same[at] = parts[0].dims()[at];
    if (same != parts[0].dims())
      refuse("cat", "equal shapes but for the axis", {&parts[0].dims(), &part.dims()});
    all += part.dims()[at];
  }
  const size_t axes = parts[0].dims().size();
  Dims along(axes, 1);
  along[at] = all;
  const Tensor place = reshape(iota(all), along);
  std::optional<Tensor> result;
  int64_t done = 0;
  for (const Tensor& part : parts) {
    const int64_t n = part.dims()[at];
    if (n == 0) continue;
    Dims before(axes, 0), behind(axes, 0);
    before[at] = done;
    behind[at] = all - done - n;
    const Tensor padded = pad(part, before, behind);
    result = result ? select(place < static_cast<float>(done), *result, padded) : padded;
    done += n;
  }
  return result.value_or(parts[0]);
}

Tensor stack(const std::vector<Tensor>& parts, int64_t axis) {
  std::vector<Tensor> all;
  for (const Tensor& part : parts) all.push_back(unsqueeze(part, axis));
  return concatenate(all, axis);
}

Tensor roll(const Tensor& x, int64_t shift, int64_t axis) {
  const int64_t n = x.dims()[axis_of(x.dims(), axis, "roll")];
  if (n == 0) return x;
  const int64_t at = ((-shift) % n + n) % n;
  const std::vector<Tensor> parts{slice(x, axis, at, n), slice(x, axis, 0, at)};
  return concatenate(parts, axis);
}

Tensor repeat(const Tensor& x, const Dims& times) {
  if (times.size() < x.dims().size()) refuse("repeat", "a number an axis", {&x.dims(), &times});
  Dims own(times.size() - x.dims().size(), 1), wide, narrow, dims;
  own.insert(own.end(), x.dims().begin(), x.dims().end());
  for (size_t i = 0; i < own.size(); ++i) {
    narrow.insert(narrow.end(), {1, own[i]});
    wide.insert(wide.end(), {times[i], own[i]});
    dims.push_back(times[i] * own[i]);
  }
  return reshape(expand(reshape(x, narrow), wide), dims);
}

Tensor lower_triangle(int64_t rows, int64_t columns, int64_t diagonal) {
  return reshape(iota(columns), {1, columns}) <=
         reshape(iota(rows), {rows, 1}) + static_cast<float>(diagonal);
}

Tensor sum_to(const Tensor& x, const Dims& dims) {
  const size_t fresh = x.dims().size() - dims.size();
  Axes axes;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    if (i < fresh || (dims[i - fresh] == 1 && x.dims()[i] != 1)) {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  return axes.empty() ? x : reshape(sum(x, axes, true), dims);
}

// --- Reductions

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

// --- Layers and losses

Tensor linear(const Tensor& of, const Tensor& by, const Tensor* bias) {
  if (of.dims().empty() || by.dims().size() != 2 || of.dims().back() != by.dims()[1]) {
    refuse("linear", "[..., K] and [M, K]", {&of.dims(), &by.dims()});
  }
  Dims dims = of.dims();
  dims.back() = by.dims()[0];
  return in_floats(
      [&](const Tensor& x, const Tensor& weight) {
        const Tensor rows = matmul(reshape(x, {-1, x.dims().back()}), transpose(weight, 0, 1));
        const Tensor y = reshape(rows, dims);
        return bias == nullptr ? y : y + cast(*bias, DType::kF32);
      },
      of, by);
}

Tensor normalise(const Tensor& of, const Axes& axes, float eps) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor centred = x - mean(x, axes, true);
        return centred * rsqrt(mean(square(centred), axes, true) + eps);
      },
      of);
}
Tensor rms_normalise(const Tensor& of, const Axes& axes, float eps) {
  return in_floats([&](const Tensor& x) { return x * rsqrt(mean(square(x), axes, true) + eps); },
                   of);
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, float scale, const Tensor* seen,
              float cap) {
  return in_floats(
      [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        Tensor scores = matmul(q, transpose(k, -2, -1)) * scale;
        if (cap > 0) scores = tanh(scores * (1.0f / cap)) * cap;
        if (seen != nullptr && seen->dtype() != DType::kBool) {
          scores = scores + *seen;
        } else if (seen != nullptr) {
          scores = select(*seen, scores, -std::numeric_limits<float>::infinity());
        }
        return matmul(softmax(scores, -1), v);
      },
      q, k, v);
}

Tensor one_hot(const Tensor& index, int64_t n) {
  // Numbers in F32 as such, so that a step of training needs no whole ones.
  const DType type = index.dtype() == DType::kI64 ? DType::kI64 : DType::kF32;
  return unsqueeze(cast(index, type), -1) == iota(n, type);
}

Tensor cross_entropy(const Tensor& of, const Tensor& targets) {
  return in_floats(
      [&](const Tensor& logits) {
        const Tensor hit = one_hot(targets, logits.dims().back());
        if (hit.dims() != logits.dims()) {
          refuse("cross_entropy", "logits [..., V] and targets [...]",
                 {&logits.dims(), &targets.dims()});
        }
        return neg(sum(select(hit, log_softmax(logits, -1), 0.0f), {-1}));
      },
      of);
}

}  // namespace split
