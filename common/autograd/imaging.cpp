#include "autograd/imaging.h"

#include <algorithm>
#include <cmath>

#include "autograd/layers.h"
#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

Tensor row_of(const Tensor& x) { return reshape(x, {count_of(x.dims()), 1}); }
Tensor in_i32(const Tensor& x) { return cast(x, DType::kI32); }

// An axis by an index [size].
Tensor picked(const Tensor& x, int64_t axis, const Tensor& index) {
  return squeeze(resample(x, axis, row_of(index)), -1);
}

// The sum over taps of elements of an axis by weights [size, taps].
Tensor weighted(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& weights) {
  Dims dims(x.dims().size() + 1, 1);
  dims[static_cast<size_t>(axis)] = weights.dims()[0];
  dims.back() = weights.dims()[1];
  return sum(resample(x, axis, index) * reshape(weights, dims), {-1});
}

// Keys' kernel of cubic convolution at a distance of t.
Tensor cubic(const Tensor& t, float a) {
  const Tensor d = abs(t);
  const Tensor near = ((a + 2) * d - (a + 3)) * d * d + 1.0f;
  const Tensor far = ((d - 5.0f) * d + 8.0f) * d * a - 4 * a;
  return select(d <= 1.0f, near, select(d < 2.0f, far, 0.0f));
}

Tensor interpolated(const Tensor& x, int64_t axis, int64_t to, double by,
                    const Interpolation& how) {
  const int64_t n = x.dims()[static_cast<size_t>(axis)];
  if (n <= 0 || to <= 0) refuse("interpolate", cat("some elements, to ", to), {&x.dims()});
  const bool is_cubic = how.mode == "bicubic";
  const Tensor i = row_of(iota(to));
  const auto last = static_cast<float>(n - 1);
  auto scale =
      static_cast<float>(by > 0 ? 1 / by : static_cast<double>(n) / static_cast<double>(to));
  if (how.mode == "nearest" || how.mode == "nearest-exact") {
    const Tensor at = floor((how.mode == "nearest" ? i : i + 0.5f) * scale);
    return picked(x, axis, in_i32(minimum(at, last)));
  }
  if (how.antialias) {
    const float wide = std::max(scale, 1.0f), support = (is_cubic ? 2.0f : 1.0f) * wide;
    const auto taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
    const Tensor centre = (i + 0.5f) * scale, j = reshape(iota(taps), {1, taps});
    const Tensor begin = maximum(trunc(centre - support + 0.5f), 0.0f);
    const Tensor end = minimum(trunc(centre + support + 0.5f), static_cast<float>(n));
    const Tensor at = begin + j, inside = at < end;
    const Tensor t = (at - centre + 0.5f) / wide;
    const Tensor each = is_cubic ? cubic(t, -0.5f) : maximum(1.0f - abs(t), 0.0f);
    const Tensor weights = select(inside, each, 0.0f);
    return weighted(x, axis, in_i32(select(inside, at, 0.0f)), weights / sum(weights, {1}, true));
  }
  if (how.align_corners) scale = to > 1 ? last / static_cast<float>(to - 1) : 0;
  Tensor from = how.align_corners ? i * scale : (i + 0.5f) * scale - 0.5f;
  if (!is_cubic) from = maximum(from, 0.0f);
  const Tensor begin = floor(from), t = from - begin;
  const int64_t taps = is_cubic ? 4 : 2, before = is_cubic ? 1 : 0;
  const Tensor j = reshape(iota(taps), {1, taps}) - static_cast<float>(before);
  const Tensor at = minimum(maximum(begin + j, 0.0f), last);
  return weighted(x, axis, in_i32(at), is_cubic ? cubic(j - t, -0.75f) : 1.0f - abs(j - t));
}

}  // namespace

Tensor resample(const Tensor& x, int64_t axis, const Tensor& index) {
  const size_t at = axis_of(x.dims(), axis, "resample"), axes = x.dims().size();
  Axes order{static_cast<int64_t>(at)}, back;
  for (size_t i = 0; i < axes; ++i) {
    if (i != at) order.push_back(static_cast<int64_t>(i));
    back.push_back(i == at ? 0 : static_cast<int64_t>(i < at ? i + 2 : i + 1));
  }
  back.push_back(1);
  return permute(take(permute(x, order), index), back);
}

Tensor interpolate(const Tensor& of, const Dims& sizes, const Interpolation& how) {
  static constexpr std::string_view kModes[] = {"nearest", "nearest-exact", "linear", "bicubic",
                                                "area"};
  if (std::ranges::find(kModes, how.mode) == std::end(kModes)) {
    throw Error(ErrorKind::kShape, cat("[interpolate] expected nearest, nearest-exact, linear, ",
                                       "bicubic or area, got ", how.mode));
  }
  if (of.dims().size() != sizes.size() + 2) {
    refuse("interpolate", cat("[N, C] and ", sizes.size(), " axes"), {&of.dims()});
  }
  if (how.mode == "area") return adaptive_avg_pool(of, sizes);
  return in_floats(
      [&](Tensor x) {
        for (size_t i = 0; i < sizes.size(); ++i) {
          x = interpolated(x, static_cast<int64_t>(i + 2), sizes[i],
                           i < how.scales.size() ? how.scales[i] : 0, how);
        }
        return x;
      },
      of);
}

Tensor pad_with(const Tensor& of, const Dims& around, std::string_view mode) {
  Tensor x = of;
  if (around.size() % 2 != 0 || around.size() / 2 > x.dims().size()) {
    refuse("pad", "two numbers an axis", {&x.dims(), &around});
  }
  for (size_t k = 0; k < around.size() / 2; ++k) {
    const auto axis = static_cast<int64_t>(x.dims().size() - 1 - k);
    const int64_t n = x.dims()[static_cast<size_t>(axis)], before = around[2 * k],
                  all = n + before + around[2 * k + 1];
    const Tensor i = iota(all, DType::kI32) - before;
    if (mode == "reflect") {
      if (std::max(before, around[2 * k + 1]) >= n)
        refuse("pad", "less than an axis", {&x.dims(), &around});
      const Tensor at = abs(i);
      x = picked(x, axis, select(at >= n, 2 * (n - 1) - at, at));
    } else if (mode == "replicate") {
      x = picked(x, axis, minimum(maximum(i, 0), n - 1));
    } else if (mode == "circular") {
      x = picked(x, axis, remainder(i, n));
    } else {
      throw Error(ErrorKind::kShape,
                  cat("[pad] expected reflect, replicate or circular, got ", mode));
    }
  }
  return x;
}

Tensor pixel_shuffle(const Tensor& x, int64_t by) {
  const Dims& d = x.dims();
  if (d.size() != 4 || by <= 0 || d[1] % (by * by) != 0) {
    refuse("pixel_shuffle", cat("[N, C ", by, "^2, H, W]"), {&d});
  }
  const Tensor parts = reshape(x, {d[0], d[1] / (by * by), by, by, d[2], d[3]});
  return reshape(permute(parts, {0, 1, 4, 2, 5, 3}),
                 {d[0], d[1] / (by * by), d[2] * by, d[3] * by});
}
Tensor pixel_unshuffle(const Tensor& x, int64_t by) {
  const Dims& d = x.dims();
  if (d.size() != 4 || by <= 0 || d[2] % by != 0 || d[3] % by != 0) {
    refuse("pixel_unshuffle", cat("[N, C, ", by, " H, ", by, " W]"), {&d});
  }
  const Tensor parts = reshape(x, {d[0], d[1], d[2] / by, by, d[3] / by, by});
  return reshape(permute(parts, {0, 1, 3, 5, 2, 4}), {d[0], d[1] * by * by, d[2] / by, d[3] / by});
}
Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  Dims parts = x.dims();
  if (parts.size() < 2 || groups <= 0 || parts[1] % groups != 0) {
    refuse("channel_shuffle", cat("channels in ", groups, " groups"), {&x.dims()});
  }
  parts[1] /= groups;
  parts.insert(parts.begin() + 1, groups);
  return reshape(transpose(reshape(x, parts), 1, 2), x.dims());
}

namespace {

// A coordinate of -1 to 1 as a place among n.
Tensor coordinate(const Tensor& g, int64_t n, const GridSampling& how) {
  const auto size = static_cast<float>(n);
  Tensor at =
      how.align_corners ? (g + 1.0f) * (0.5f * (size - 1)) : ((g + 1.0f) * size - 1.0f) * 0.5f;
  if (how.padding == "reflection") {
    const float least = how.align_corners ? 0 : -0.5f, span = how.align_corners ? size - 1 : size;
    if (span == 0) return at * 0.0f;
    const Tensor d = abs(at - least), over = fmod(d, span);
    const Tensor odd = fmod(floor(d / span), 2.0f) == 1.0f;
    at = select(odd, span - over, over) + least;
  }
  if (how.padding == "zeros") return at;
  return select(at <= 0.0f, 0.0f, select(at >= size - 1, size - 1, at));
}

}  // namespace

Tensor grid_sample(const Tensor& of, const Tensor& by, const GridSampling& how) {
  const Dims &d = of.dims(), &g = by.dims();
  if (d.size() != 4 || g.size() != 4 || g[3] != 2 || g[0] != d[0]) {
    refuse("grid_sample", "[N, C, H, W] and [N, h, w, 2]", {&d, &g});
  }
  const bool nearest = how.mode == "nearest";
  return in_floats(
      [&](const Tensor& image, const Tensor& grid) {
        const Tensor x = coordinate(squeeze(slice(grid, 3, 0, 1), 3), d[3], how);
        const Tensor y = coordinate(squeeze(slice(grid, 3, 1, 2), 3), d[2], how);
        const Tensor rows = reshape(permute(image, {0, 2, 3, 1}), {d[0] * d[2] * d[3], d[1]});
        const Tensor plane = reshape(iota(d[0], DType::kI32), {d[0], 1, 1}) * d[2];
        const auto at = [&](const Tensor& column, const Tensor& row) {
          const Tensor inside =
              logical_and(logical_and(column >= 0.0f, column < static_cast<float>(d[3])),
                          logical_and(row >= 0.0f, row < static_cast<float>(d[2])));
          const Tensor place = (plane + in_i32(select(inside, row, 0.0f))) * d[3] +
                               in_i32(select(inside, column, 0.0f));
          return select(unsqueeze(inside, -1), take(rows, place), 0.0f);
        };
        if (nearest) return permute(at(round(x), round(y)), {0, 3, 1, 2});
        const Tensor x0 = floor(x), y0 = floor(y);
        std::optional<Tensor> all;
        for (const float dx : {0.0f, 1.0f}) {
          for (const float dy : {0.0f, 1.0f}) {
            const Tensor column = x0 + dx, row = y0 + dy;
            const Tensor weight = (1.0f - abs(x - column)) * (1.0f - abs(y - row));
            const Tensor part = at(column, row) * unsqueeze(weight, -1);
            all = all ? *all + part : part;
          }
        }
        return permute(*all, {0, 3, 1, 2});
      },
      of, by);
}

Tensor affine_grid(const Tensor& theta, int64_t h, int64_t w, bool align_corners) {
  if (theta.dims().size() != 3 || theta.dims()[1] != 2 || theta.dims()[2] != 3) {
    refuse("affine_grid", "[N, 2, 3]", {&theta.dims()});
  }
  const auto along = [&](int64_t n) {
    if (align_corners) return linspace(-1, 1, n);
    return (iota(n) * 2.0f + 1.0f) / static_cast<float>(n) - 1.0f;
  };
  const Dims plane{h, w, 1};
  const std::vector<Tensor> parts{expand(reshape(along(w), {1, w, 1}), plane),
                                  expand(reshape(along(h), {h, 1, 1}), plane), expand(1.0f, plane)};
  const Tensor base = reshape(concatenate(parts, 2), {h * w, 3});
  const Tensor grid = matmul(base, transpose(theta, 1, 2));
  return reshape(grid, {theta.dims()[0], h, w, 2});
}

Tensor rgb_to_grayscale(const Tensor& of) {
  return in_floats(
      [](const Tensor& x) {
        const auto channel = [&](int64_t i) { return slice(x, -3, i, i + 1); };
        return channel(0) * 0.2989f + channel(1) * 0.587f + channel(2) * 0.114f;
      },
      of);
}
Tensor gaussian_blur(const Tensor& of, int64_t kernel, float sigma) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor t = (iota(kernel) - 0.5f * static_cast<float>(kernel - 1)) / sigma;
        const Tensor weights = softmax(t * t * -0.5f, 0);
        const int64_t half = kernel / 2;
        Tensor y = pad_with(x, {half, half, half, half}, "reflect");
        for (const int64_t axis : {-2, -1}) {
          const auto at = static_cast<int64_t>(x.dims().size()) + axis;
          y = sum(windows(y, at, kernel, 1) * weights, {-1});
        }
        return y;
      },
      of);
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t axis, int64_t other) {
  const size_t a = axis_of(x.dims(), axis, "diagonal"), b = axis_of(x.dims(), other, "diagonal");
  if (a == b) refuse("diagonal", "two axes", {&x.dims()});
  Axes order;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    if (i != a && i != b) order.push_back(static_cast<int64_t>(i));
  }
  order.insert(order.end(), {static_cast<int64_t>(a), static_cast<int64_t>(b)});
  const Tensor moved = permute(x, order);
  const int64_t rows = x.dims()[a], columns = x.dims()[b];
  const int64_t n = std::max<int64_t>(
      0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
  Dims dims(moved.dims().begin(), moved.dims().end() - 2);
  dims.push_back(rows * columns);
  const int64_t from = n == 0 ? 0 : offset >= 0 ? offset : -offset * columns;
  return slice(reshape(moved, dims), -1, from, n == 0 ? 0 : from + (n - 1) * (columns + 1) + 1,
               columns + 1);
}
Tensor diag_embed(const Tensor& x, int64_t offset) {
  const int64_t more = std::abs(offset), n = x.dims().back() + more;
  Dims none(x.dims().size(), 0), behind = none;
  behind.back() = more;
  const Tensor wide = unsqueeze(pad(x, none, behind), offset >= 0 ? -1 : -2);
  const Tensor on =
      reshape(iota(n, DType::kI32), {1, n}) == reshape(iota(n, DType::kI32), {n, 1}) + offset;
  return select(on, wide, cast(0, x.dtype()));
}
Tensor repeat_interleave(const Tensor& x, int64_t times, int64_t axis) {
  const size_t at = axis_of(x.dims(), axis, "repeat_interleave");
  const Tensor apart = unsqueeze(x, static_cast<int64_t>(at) + 1);
  Dims wide = apart.dims(), dims = x.dims();
  wide[at + 1] = times;
  dims[at] *= times;
  return reshape(expand(apart, wide), dims);
}
Tensor linspace(double start, double end, int64_t steps) {
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  return iota(steps) * static_cast<float>(step) + static_cast<float>(start);
}

}  // namespace split
