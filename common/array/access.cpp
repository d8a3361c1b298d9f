#include "array/access.h"

#include <algorithm>

#include "base/error.h"

namespace split::array {

bool Access::bounded() const {
  return std::ranges::any_of(axes, [](const Axis& axis) { return !axis.whole(); });
}
int64_t Access::count() const {
  int64_t n = 1;
  for (const Axis& axis : axes) n *= axis.size;
  return n;
}
bool Access::flat() const {
  const Access s = simplified(*this);
  return !s.bounded() && s.offset == 0 &&
         (s.axes.empty() || (s.axes.size() == 1 && s.axes[0].stride == 1));
}
bool Access::per_row(int64_t rows, int64_t inner) const {
  const Access s = simplified(*this);
  if (s.bounded() || s.offset != 0 || s.count() != rows * inner) return false;
  if (inner == 1) return flat();
  if (rows == 1) return s.axes.size() == 1 && s.axes[0].stride == 0;
  return s.axes.size() == 2 && s.axes[0] == Axis{rows, 1, 0, rows} &&
         s.axes[1] == Axis{inner, 0, 0, inner};
}

Access dense(const Dims& dims) {
  Access access;
  access.axes.resize(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) {
    access.axes[i] = {dims[i], stride, 0, dims[i]};
  }
  return access;
}

namespace {

// Rounds up, for whole numbers of any sign.
int64_t divided_up(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// Distributes the sizes of axes that belong together: in [i, j) and out [k, l) have equal products.
std::optional<Access> reshaped(const Access& in, const Dims& dims) {
  Access out;
  out.offset = in.offset;
  out.fill = in.fill;
  std::vector<Axis> from;
  for (const Axis& axis : in.axes) {
    if (axis.size != 1 || !axis.whole()) from.push_back(axis);
  }
  size_t i = 0;
  out.axes.resize(dims.size());
  for (size_t k = 0; k < dims.size();) {
    if (dims[k] == 1) {
      out.axes[k++] = {1, 0, 0, 1};
      continue;
    }
    if (i >= from.size()) return std::nullopt;
    if (from[i].size == dims[k]) {
      out.axes[k++] = from[i++];
      continue;
    }
    // The smallest groups of axes with one product.
    size_t i_end = i + 1, k_end = k + 1;
    int64_t a = from[i].size, b = dims[k];
    while (a != b) {
      if (a < b ? i_end >= from.size() : k_end >= dims.size()) return std::nullopt;
      if (a < b) {
        a *= from[i_end++].size;
      } else {
        b *= dims[k_end++];
      }
    }
    // In one stride, unless they are bounded.
    for (size_t at = i; at < i_end; ++at) {
      if (!from[at].whole()) return std::nullopt;
      if (at + 1 < i_end && from[at].stride != from[at + 1].stride * from[at + 1].size) {
        return std::nullopt;
      }
    }
    int64_t stride = from[i_end - 1].stride;
    for (size_t at = k_end; at-- > k; stride *= dims[at]) {
      out.axes[at] = {dims[at], stride, 0, dims[at]};
    }
    i = i_end;
    k = k_end;
  }
  return i == from.size() ? std::optional(out) : std::nullopt;
}

std::optional<Access> padded(const Node& view, const Access& in) {
  const auto value = static_cast<float>(view.attributes.back());
  if (in.bounded() && !(in.fill == value)) return std::nullopt;
  Access out = in;
  out.fill = value;
  for (size_t i = 0; i < out.axes.size(); ++i) {
    Axis& axis = out.axes[i];
    const auto before = static_cast<int64_t>(view.attributes[i]);
    axis.from = std::max<int64_t>(axis.from, 0) + before;
    axis.to = std::min(axis.to, axis.size) + before;
    axis.size = view.dims[i];
    out.offset -= before * axis.stride;
  }
  return out;
}

void sliced(const Node& view, Access& out) {
  for (size_t i = 0; i < out.axes.size(); ++i) {
    Axis& axis = out.axes[i];
    const auto start = static_cast<int64_t>(view.attributes[2 * i]);
    const auto step = static_cast<int64_t>(view.attributes[2 * i + 1]);
    out.offset += start * axis.stride;
    axis.stride *= step;
    if (axis.whole()) {
      axis.from = 0;
      axis.to = view.dims[i];
    } else if (step > 0) {
      axis.from = divided_up(axis.from - start, step);
      axis.to = divided_up(axis.to - start, step);
    } else {
      const int64_t from = axis.from;
      axis.from = divided_up(start - axis.to + 1, -step);
      axis.to = divided_up(start - from + 1, -step);
    }
    axis.size = view.dims[i];
  }
}

}  // namespace

std::optional<Access> through(const Node& view, const Access& in) {
  // Nothing is read where there are no elements.
  if (element_count(view.dims) == 0) return dense(view.dims);
  Access out = in;
  switch (view.op) {
    case Op::k_reshape:
      return reshaped(in, view.dims);
    case Op::k_detach:
    case Op::k_custom:
      return out;
    case Op::k_permute:
      for (size_t i = 0; i < out.axes.size(); ++i) {
        out.axes[i] = in.axes[static_cast<size_t>(view.attributes[i])];
      }
      return out;
    case Op::k_expand:
      for (size_t i = 0; i < out.axes.size(); ++i) {
        if (out.axes[i].size == view.dims[i]) continue;
        const bool there = out.axes[i].whole();
        if (there) out.axes[i] = {view.dims[i], 0, 0, view.dims[i]};
        if (!there) out.axes[i] = {view.dims[i], 0, 0, 0};
      }
      return out;
    case Op::k_slice:
      sliced(view, out);
      return out;
    case Op::k_pad:
      return padded(view, in);
    case Op::k_window: {
      const auto at = static_cast<size_t>(view.attributes[0]);
      Axis& axis = out.axes[at];
      if (!axis.whole()) return std::nullopt;
      const int64_t size = view.dims.back(), each = axis.stride;
      axis = {view.dims[at], each * static_cast<int64_t>(view.attributes[1]), 0, view.dims[at]};
      out.axes.push_back({size, each * static_cast<int64_t>(view.attributes[2]), 0, size});
      return out;
    }
    default:
      CHECK(false);
  }
}

Access permuted(const Access& in, const std::vector<size_t>& order) {
  Access out = in;
  for (size_t i = 0; i < order.size(); ++i) out.axes[i] = in.axes[order[i]];
  return out;
}

Access simplified(Access in) {
  std::vector<Axis> axes;
  for (const Axis& axis : in.axes) {
    if (axis.size == 1 && axis.whole()) continue;
    const Axis fresh = axis.whole() ? Axis{axis.size, axis.stride, 0, axis.size} : axis;
    if (!axes.empty() && axes.back().whole() && fresh.whole() &&
        axes.back().stride == fresh.stride * fresh.size) {
      const int64_t size = axes.back().size * fresh.size;
      axes.back() = {size, fresh.stride, 0, size};
    } else {
      axes.push_back(fresh);
    }
  }
  in.axes = std::move(axes);
  return in;
}

}  // namespace split::array
