#include "autograd/functions.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

Tensor sum(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_sum, x, axes, keep);
}
Tensor amax(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_max, x, axes, keep);
}
Tensor amin(const Tensor& x, const Axes& axes, bool keep) {
  return reduce(Op::k_reduce_min, x, axes, keep);
}

namespace {

float reduced_count(const Tensor& x, const Axes& axes) {
  int64_t n = axes.empty() ? count_of(x.dims()) : 1;
  for (const int64_t axis : axes) n *= x.dims()[axis_of(x.dims(), axis, "mean")];
  return static_cast<float>(n);
}

}  // namespace

Tensor mean(const Tensor& x, const Axes& axes, bool keep) {
  return sum(x, axes, keep) / reduced_count(x, axes);
}
Tensor variance(const Tensor& x, const Axes& axes, float correction, bool keep) {
  return sum(square(x - mean(x, axes, true)), axes, keep) /
         std::max(0.0f, reduced_count(x, axes) - correction);
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keep) {
  // The largest only scales, so its gradient is none. An infinite one would make NaN of equal ones.
  const Tensor top = detach(amax(x, axes, true));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor from = select(abs(top) == kInfinity, 0.0f, top);
  const Tensor all = log(sum(exp(x - from), axes, true)) + from;
  return keep ? all : reshape(all, sum(x, axes, false).dims());
}
Tensor softmax(const Tensor& x, int64_t axis) {
  if (x.dims().empty()) return x / x;
  const Tensor e = exp(x - detach(amax(x, {axis}, true)));
  return e / sum(e, {axis}, true);
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  const Tensor centred = x - detach(amax(x, {axis}, true));
  return centred - log(sum(exp(centred), {axis}, true));
}

// --- Layers and losses

Tensor linear(const Tensor& x, const Tensor& weight) {
  if (x.dims().empty() || weight.dims().size() != 2 || x.dims().back() != weight.dims()[1]) {
    refuse("linear", "[..., K] and [M, K]", {&x.dims(), &weight.dims()});
  }
  Dims dims = x.dims();
  dims.back() = weight.dims()[0];
  return reshape(matmul(reshape(x, {-1, x.dims().back()}), transpose(weight, 0, 1)), dims);
}

Tensor normalise(const Tensor& x, const Axes& axes, float eps) {
  const Tensor centred = x - mean(x, axes, true);
  return centred * rsqrt(mean(square(centred), axes, true) + eps);
}
Tensor rms_normalise(const Tensor& x, const Axes& axes, float eps) {
  return x * rsqrt(mean(square(x), axes, true) + eps);
}

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, float scale, const Tensor* seen,
              float cap) {
  Tensor scores = matmul(q, transpose(k, -2, -1)) * scale;
  if (cap > 0) scores = tanh(scores * (1.0f / cap)) * cap;
  if (seen != nullptr) {
    scores = select(*seen, scores, -std::numeric_limits<float>::infinity());
  }
  return matmul(softmax(scores, -1), v);
}

Tensor one_hot(const Tensor& index, int64_t n) { return unsqueeze(index, -1) == iota(n); }

Tensor gather_along(const Tensor& x, int64_t axis, const Tensor& index) {
  const size_t at = axis_of(x.dims(), axis, "gather");
  const Dims& dims = index.dims();
  if (dims.size() != x.dims().size())
    refuse("gather", "an index of as many axes", {&x.dims(), &dims});
  // The place of each element in x, laid flat.
  Tensor place = 0.0f;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    Dims along(dims.size(), 1);
    along[i] = dims[i];
    const Tensor on = i == at ? index : reshape(iota(dims[i]), along);
    if (dims[i] > x.dims()[i] && i != at) refuse("gather", "an index inside", {&x.dims(), &dims});
    place = place + on * static_cast<float>(stride);
    stride *= x.dims()[i];
  }
  if (stride > 1 << 24) refuse("gather", "at most 2^24 elements", {&x.dims()});
  return take(reshape(x, {-1}), place);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Tensor hit = one_hot(targets, logits.dims().back());
  if (hit.dims() != logits.dims()) {
    refuse("cross_entropy", "logits [..., V] and targets [...]", {&logits.dims(), &targets.dims()});
  }
  return neg(sum(select(hit, log_softmax(logits, -1), 0.0f), {-1}));
}

}  // namespace split
