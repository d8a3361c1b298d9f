// How a kernel reads a tensor: views of views as one affine map with bounds. Element [i0, i1, ...]
// of what is read is base[offset + sum i * stride], or `fill` where an index is out of its bounds.
#pragma once

#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace split::array {

// Axes of a tensor of 8, each of which is a window's two.
inline constexpr size_t kMostAccessAxes = 16;

struct Axis {
  int64_t size = 1;
  int64_t stride = 0;
  int64_t from = 0, to = 1;  // indices that are there
  bool whole() const { return from <= 0 && to >= size; }
  bool operator==(const Axis&) const = default;
};

struct Access {
  std::vector<Axis> axes;
  int64_t offset = 0;
  float fill = 0;

  bool operator==(const Access&) const = default;
  bool bounded() const;
  // Whether it is `count` elements in order from the first.
  bool flat() const;
  // Whether it is, of `rows` times `inner` elements, one a row in order.
  bool per_row(int64_t rows, int64_t inner) const;
  int64_t count() const;
};

Access dense(const Dims& dims);
// Composes a view with how its tensor is read; nothing where that is no affine map.
std::optional<Access> through(const Node& view, const Access& in);
// Axes in another order.
Access permuted(const Access& in, const std::vector<size_t>& order);
// Joins axes, so that there are as few as can be.
Access simplified(Access in);

}  // namespace split::array
