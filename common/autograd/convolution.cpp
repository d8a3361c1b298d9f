#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/imaging.h"
#include "autograd/layers.h"
#include "autograd/pointwise.h"
#include "autograd/reductions.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t of_axis(const Dims& numbers, size_t i, std::string_view where) {
  if (numbers.size() != 1 && i >= numbers.size()) {
    refuse(where, cat("a number for axis ", i), {&numbers});
  }
  return numbers.size() == 1 ? numbers[0] : numbers[i];
}

// Around the last axes.
Tensor padded(const Tensor& x, const Dims& before, const Dims& behind, float value = 0) {
  Dims front(x.dims().size(), 0), back = front;
  std::copy(before.begin(), before.end(), front.end() - static_cast<std::ptrdiff_t>(before.size()));
  std::copy(behind.begin(), behind.end(), back.end() - static_cast<std::ptrdiff_t>(behind.size()));
  return pad(x, front, back, value);
}

// The last axes as windows, which are the axes behind all others.
Tensor all_windows(Tensor x, const Dims& kernel, const Dims& stride, const Dims& dilation) {
  const size_t first = x.dims().size() - kernel.size();
  for (size_t i = 0; i < kernel.size(); ++i) {
    x = windows(x, static_cast<int64_t>(first + i), kernel[i], of_axis(stride, i, "windows"),
                of_axis(dilation, i, "windows"));
  }
  return x;
}

Dims around(const Dims& dims, size_t from, size_t n) {
  const auto begin = dims.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

Tensor with_bias(const Tensor& y, const Tensor* bias) {
  if (bias == nullptr) return y;
  Dims dims(y.dims().size(), 1);
  dims[1] = count_of(bias->dims());
  return y + reshape(*bias, dims);
}

// x without N gets one for `function`, and its result loses it.
Tensor batched(const Tensor& x, size_t axes, const auto& function) {
  if (x.dims().size() == axes + 2) return function(x);
  if (x.dims().size() != axes + 1) refuse("conv", cat("[N, C] and ", axes, " axes"), {&x.dims()});
  return squeeze(function(unsqueeze(x, 0)), 0);
}

// [N, C] and two times `axes` axes, the second ones first.
Tensor turned(const Tensor& x, size_t axes) {
  Axes order{0, 1};
  for (size_t i = 0; i < 2 * axes; ++i) {
    order.push_back(static_cast<int64_t>(2 + (i + axes) % (2 * axes)));
  }
  return permute(x, order);
}

// Rows of windows [N, G, C / G * kernel, places] of x that is padded.
Tensor columns_of(const Tensor& x, const Dims& kernel, const Convolution& by) {
  const size_t axes = kernel.size();
  const Tensor all = all_windows(x, kernel, by.stride, by.dilation);
  const int64_t n = x.dims()[0], channels = x.dims()[1];
  const Dims places = around(all.dims(), 2, axes);
  return reshape(turned(all, axes),
                 {n, by.groups, channels / by.groups * count_of(kernel), count_of(places)});
}

// Rows of windows [N, C kernel, places] added up where they lie in [N, C, output...].
Tensor folded(const Tensor& rows, int64_t channels, const Dims& kernel, const Dims& places,
              const Dims& output, const Convolution& by) {
  Dims dims{rows.dims()[0], channels}, before(kernel.size()), behind = before;
  dims.insert(dims.end(), kernel.begin(), kernel.end());
  dims.insert(dims.end(), places.begin(), places.end());
  Tensor x = turned(reshape(rows, dims), kernel.size());
  for (size_t i = kernel.size(); i-- > 0;) {
    const int64_t step = of_axis(by.stride, i, "fold"), apart = of_axis(by.dilation, i, "fold");
    const int64_t reach = (places[i] - 1) * step + apart * (kernel[i] - 1) + 1;
    x = add_windows(x, static_cast<int64_t>(2 + i), reach, step, apart);
    before[i] = -of_axis(by.padding, i, "fold");
    behind[i] = output[i] - before[i] - reach;
  }
  return padded(x, before, behind);
}

void check(const Tensor& x, const Tensor& weight, int64_t inputs, const Convolution& by) {
  if (by.groups <= 0 || inputs != x.dims()[1] || x.dims()[1] % by.groups != 0 ||
      weight.dims()[0] % by.groups != 0) {
    refuse("conv", cat("channels in ", by.groups, " groups, as the weight has them"),
           {&x.dims(), &weight.dims()});
  }
}

}  // namespace

Tensor convolve(const Tensor& of, const Tensor& weight, const Tensor* bias, const Convolution& by) {
  if (weight.dims().size() < 3) refuse("conv", "a weight [outputs, C, ...]", {&weight.dims()});
  const size_t axes = weight.dims().size() - 2;
  const Dims kernel = around(weight.dims(), 2, axes);
  return in_floats(
      [&](const Tensor& x, const Tensor& weight, const Tensor& bias_or_none) {
        return batched(x, axes, [&](const Tensor& x) {
          check(x, weight, weight.dims()[1] * by.groups, by);
          Dims before, behind;
          for (size_t i = 0; i < axes; ++i) {
            const int64_t reach = of_axis(by.dilation, i, "conv") * (kernel[i] - 1);
            before.push_back(by.same ? reach / 2 : of_axis(by.padding, i, "conv"));
            behind.push_back(by.same ? reach - reach / 2 : before.back());
          }
          const Tensor wide = padded(x, before, behind);
          const Tensor columns = columns_of(wide, kernel, by);
          const int64_t outputs = weight.dims()[0];
          const Tensor y = matmul(reshape(weight, {by.groups, outputs / by.groups, -1}), columns);
          Dims dims{x.dims()[0], outputs};
          for (size_t i = 0; i < axes; ++i) {
            dims.push_back(
                (wide.dims()[2 + i] - of_axis(by.dilation, i, "conv") * (kernel[i] - 1) - 1) /
                    of_axis(by.stride, i, "conv") +
                1);
          }
          return with_bias(reshape(y, dims), bias == nullptr ? nullptr : &bias_or_none);
        });
      },
      of, weight, bias == nullptr ? weight : *bias);
}

Tensor convolve_transposed(const Tensor& of, const Tensor& weight, const Tensor* bias,
                           const Convolution& by) {
  if (weight.dims().size() < 3) refuse("conv", "a weight [C, outputs, ...]", {&weight.dims()});
  const size_t axes = weight.dims().size() - 2;
  const Dims kernel = around(weight.dims(), 2, axes);
  return in_floats(
      [&](const Tensor& x, const Tensor& weight, const Tensor& bias_or_none) {
        return batched(x, axes, [&](const Tensor& x) {
          check(x, weight, weight.dims()[0], by);
          const int64_t n = x.dims()[0], channels = x.dims()[1], g = by.groups;
          const int64_t outputs = weight.dims()[1] * g;
          const Dims places = around(x.dims(), 2, axes);
          const Tensor w = transpose(reshape(weight, {g, channels / g, -1}), 1, 2);
          const Tensor rows = matmul(w, reshape(x, {n, g, channels / g, count_of(places)}));
          Dims output;
          for (size_t i = 0; i < axes; ++i) {
            output.push_back((places[i] - 1) * of_axis(by.stride, i, "conv") +
                             of_axis(by.dilation, i, "conv") * (kernel[i] - 1) + 1 -
                             2 * of_axis(by.padding, i, "conv") +
                             of_axis(by.output_padding, i, "conv"));
          }
          const Tensor y = folded(rows, outputs, kernel, places, output, by);
          return with_bias(y, bias == nullptr ? nullptr : &bias_or_none);
        });
      },
      of, weight, bias == nullptr ? weight : *bias);
}

Tensor unfold(const Tensor& x, const Dims& kernel, const Convolution& by) {
  Dims around;
  for (size_t i = 0; i < kernel.size(); ++i) around.push_back(of_axis(by.padding, i, "unfold"));
  const Tensor columns = columns_of(padded(x, around, around), kernel, by);
  return reshape(columns, {columns.dims()[0], columns.dims()[2], columns.dims()[3]});
}

Tensor fold(const Tensor& x, const Dims& output, const Dims& kernel, const Convolution& by) {
  Dims places;
  for (size_t i = 0; i < kernel.size(); ++i) {
    places.push_back((output[i] + 2 * of_axis(by.padding, i, "fold") -
                      of_axis(by.dilation, i, "fold") * (kernel[i] - 1) - 1) /
                         of_axis(by.stride, i, "fold") +
                     1);
  }
  const int64_t channels = x.dims()[1] / count_of(kernel);
  return in_floats([&](const Tensor& x) { return folded(x, channels, kernel, places, output, by); },
                   x);
}

// --- Pooling

namespace {

// Windows of the last axes [..., places..., elements of a window], and how many lie in x.
struct Windows {
  Tensor values;
  Dims kernel, stride;
  Dims before, behind;
};
Windows pooled_windows(const Tensor& x, size_t axes, const Pooling& by, float fill) {
  Windows out{x, {}, {}, {}, {}};
  const size_t first = x.dims().size() - axes;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t k = of_axis(by.kernel, i, "pool"), n = x.dims()[first + i];
    const int64_t step = by.stride.empty() ? k : of_axis(by.stride, i, "pool");
    const int64_t pad = of_axis(by.padding, i, "pool");
    const int64_t reach = of_axis(by.dilation, i, "pool") * (k - 1) + 1;
    if (step <= 0 || k <= 0 || pad < 0 || 2 * pad > k || n + 2 * pad < reach) {
      refuse("pool", cat("room for a kernel of ", k, " with padding ", pad), {&x.dims()});
    }
    int64_t count = (n + 2 * pad - reach) / step + 1;
    if (by.ceil && (count - 1) * step + reach < n + 2 * pad && count * step < n + pad) ++count;
    out.kernel.push_back(k);
    out.stride.push_back(step);
    out.before.push_back(pad);
    out.behind.push_back(std::max(pad, (count - 1) * step + reach - n - pad));
  }
  const Tensor all =
      all_windows(padded(x, out.before, out.behind, fill), out.kernel, out.stride, by.dilation);
  Dims dims(all.dims().begin(), all.dims().end() - static_cast<std::ptrdiff_t>(axes));
  dims.push_back(count_of(out.kernel));
  out.values = reshape(all, dims);
  return out;
}

}  // namespace

Pooled max_pool(const Tensor& x, size_t axes, const Pooling& by) {
  const Windows in = pooled_windows(x, axes, by, -kInfinity);
  const Found found = max_along(in.values, -1, true);
  // Where in the plane: of each axis the window's begin and the place in it.
  const size_t first = x.dims().size() - axes;
  Tensor place = 0, left = squeeze(found.indices, -1);
  int64_t stride = 1;
  for (size_t i = axes; i-- > 0;) {
    const Tensor within = remainder(left, in.kernel[i]);
    left = divide(left, in.kernel[i], "floor");
    Dims along(x.dims().size(), 1);
    along[first + i] = within.dims()[first + i];
    const Tensor begin =
        reshape(iota(along[first + i], DType::kI32), along) * in.stride[i] - in.before[i];
    place = place + (begin + within * of_axis(by.dilation, i, "pool")) * stride;
    stride *= x.dims()[first + i];
  }
  return {squeeze(found.values, -1), place};
}

Tensor avg_pool(const Tensor& of, size_t axes, const Pooling& by) {
  return in_floats(
      [&](const Tensor& x) {
        const Windows in = pooled_windows(x, axes, by, 0);
        const Tensor all = sum(in.values, {-1});
        if (by.divisor) return all / *by.divisor;
        // Elements that count: those of x or, with padding, those that it reaches.
        const Dims plane = around(x.dims(), x.dims().size() - axes, axes);
        Tensor ones = expand(1.0f, plane);
        Pooling same = by;
        if (by.count_padding) {
          Dims front;
          for (size_t i = 0; i < axes; ++i) front.push_back(of_axis(by.padding, i, "pool"));
          ones = padded(ones, front, front, 1);
          Dims more = front;
          for (size_t i = 0; i < axes; ++i) more[i] = in.behind[i] - front[i];
          ones = padded(ones, Dims(axes, 0), more);
        } else {
          ones = padded(ones, in.before, in.behind);
        }
        const Tensor count = all_windows(ones, in.kernel, in.stride, by.dilation);
        Axes inner;
        for (size_t i = 0; i < axes; ++i) inner.push_back(-1 - static_cast<int64_t>(i));
        return all / sum(count, inner);
      },
      of);
}

Tensor lp_pool(const Tensor& of, size_t axes, double p, const Pooling& by) {
  return in_floats(
      [&](const Tensor& x) { return norm(pooled_windows(x, axes, by, 0).values, p, {-1}); }, of);
}

namespace {

// Elements floor(i n / m) to ceil((i + 1) n / m) of an axis, as the last axis, and whether each is
// one of them.
struct Shares {
  Tensor values, inside, count;
};
Shares shares(const Tensor& x, size_t axis, int64_t to) {
  const int64_t n = x.dims()[axis];
  if (to <= 0 || n == 0) refuse("adaptive_pool", cat(to, " of some elements"), {&x.dims()});
  const int64_t most = n % to == 0 ? n / to : n / to + 2;
  const Tensor i = reshape(iota(to, DType::kI32), {to, 1});
  const Tensor begin = divide(i * n, to, "floor");
  const Tensor end = divide((i + 1) * n + (to - 1), to, "floor");
  const Tensor at = begin + reshape(iota(most, DType::kI32), {1, most});
  const Tensor inside = at < end;
  const Tensor rows = resample(x, static_cast<int64_t>(axis), select(inside, at, 0));
  Dims dims(x.dims().size() + 1, 1);
  dims[axis] = to;
  Dims counts = dims;
  dims.back() = most;
  counts.pop_back();
  return {rows, reshape(inside, dims), reshape(cast(end - begin, DType::kF32), counts)};
}

Tensor adaptive(const Tensor& of, const Dims& sizes, const auto& function) {
  return in_floats(
      [&](Tensor x) {
        const size_t first = x.dims().size() - sizes.size();
        for (size_t i = 0; i < sizes.size(); ++i) {
          if (sizes[i] != -1) x = function(shares(x, first + i, sizes[i]));
        }
        return x;
      },
      of);
}

}  // namespace

Tensor adaptive_avg_pool(const Tensor& x, const Dims& sizes) {
  return adaptive(x, sizes, [](const Shares& in) {
    return sum(select(in.inside, in.values, 0.0f), {-1}) / in.count;
  });
}
Tensor adaptive_max_pool(const Tensor& x, const Dims& sizes) {
  return adaptive(x, sizes, [](const Shares& in) {
    return max_along(select(in.inside, in.values, -kInfinity), -1).values;
  });
}

}  // namespace split
