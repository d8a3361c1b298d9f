#include "autograd/indexing.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"
#include "tensor/home.h"

namespace split {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

DType index_type(const Tensor& index) {
  if (!is_half(index.dtype()) && index.dtype() != DType::kBool) {
    return index.dtype() == DType::kI64 ? DType::kI64 : DType::kI32;
  }
  throw Error(ErrorKind::kShape,
              cat("[index] expected I32 or I64, got ", dtype_name(index.dtype())));
}

// An index into n elements, from 0; what is outside is told by -1, which no table has.
Tensor checked(const Tensor& index, int64_t n) {
  const Tensor i = cast(index, index_type(index));
  const Tensor from_start = select(i < 0, i + n, i);
  return select(logical_and(from_start >= 0, from_start < n), from_start, -1);
}

Dims alone(size_t axes, size_t at, int64_t size) {
  Dims dims(axes, 1);
  dims[at] = size;
  return dims;
}

// The place in x, laid flat, of each element of an index along an axis.
Tensor places_along(const Tensor& x, int64_t axis, const Tensor& index) {
  const size_t at = axis_of(x.dims(), axis, "gather");
  const Dims& dims = index.dims();
  if (dims.size() != x.dims().size()) {
    refuse("gather", "an index of as many axes", {&x.dims(), &dims});
  }
  const DType type = index_type(index);
  const Tensor on = checked(index, x.dims()[at]);
  Tensor place = 0;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (i != at && dims[i] > x.dims()[i]) {
      refuse("gather", "an index inside", {&x.dims(), &dims});
    }
    const Tensor along =
        i == at ? on : reshape(iota(dims[i], type), alone(dims.size(), i, dims[i]));
    place = place + along * stride;
    stride *= x.dims()[i];
  }
  if (stride > std::numeric_limits<int32_t>::max() && type != DType::kI64) {
    refuse("gather", "at most 2^31 elements for an index in I32", {&x.dims()});
  }
  return select(on < 0, -1, expand(place, dims));
}

Tensor flat(const Tensor& x) { return reshape(x, {count_of(x.dims())}); }

// x, laid flat, with values where `places` says, the last of each; values may be one row a place.
Tensor put_last(const Tensor& x, const Tensor& places, const Tensor& values) {
  const int64_t n = x.dims()[0], count = count_of(places.dims());
  if (count == 0 || n == 0) return x;
  const Tensor writer = put(Op::k_reduce_max, iota(count, DType::kI32), flat(places), n);
  const Tensor written = writer >= 0;
  const Tensor rows = take(values, select(written, writer, 0));
  Dims dims(x.dims().size(), 1);
  dims[0] = n;
  return select(reshape(written, dims), rows, x);
}

Tensor moved_front(const Tensor& x, size_t axis) {
  return transpose(x, 0, static_cast<int64_t>(axis));
}

// A view by basic indices, and the tensors that stand on its axes.
struct Basic {
  Tensor view;
  std::vector<std::pair<size_t, Tensor>> advanced;
  bool apart = false;  // a basic index stands between tensors: their axes come first
};

// The positions of a mask, one tensor an axis of it.
std::vector<Tensor> positions(const Tensor& mask) {
  const Tensor all = nonzero(mask, "index by a mask");
  std::vector<Tensor> each;
  for (size_t i = 0; i < mask.dims().size(); ++i) {
    each.push_back(select_at(all, 1, static_cast<int64_t>(i)));
  }
  return each;
}

Basic basic(const Tensor& x, const Indices& indices) {
  Basic out{x, {}, false};
  size_t used = 0, ellipses = 0;
  for (const Index& one : indices) {
    if (const auto* tensor = std::get_if<Tensor>(&one)) {
      used += tensor->dtype() == DType::kBool ? tensor->dims().size() : 1;
    } else {
      ellipses += std::holds_alternative<Ellipsis>(one) ? 1 : 0;
      used += one.index() < 2 ? 1 : 0;
    }
  }
  if (used > x.dims().size() || ellipses > 1) {
    refuse("index", cat(used, " axes and at most one ellipsis"), {&x.dims()});
  }
  const bool any_tensor = std::ranges::any_of(
      indices, [](const Index& one) { return std::holds_alternative<Tensor>(one); });
  int64_t axis = 0;
  bool ended = false;  // a basic index behind a tensor
  for (const Index& one : indices) {
    const auto* const tensor = std::get_if<Tensor>(&one);
    const auto* const number = std::get_if<int64_t>(&one);
    const bool joins = tensor != nullptr || (number != nullptr && any_tensor);
    if (joins && ended) out.apart = true;
    ended = ended || (!joins && !out.advanced.empty());
    if (number != nullptr && any_tensor) {  // beside tensors it is one
      out.advanced.emplace_back(axis++, Tensor::number(static_cast<double>(*number), DType::kI32));
    } else if (number != nullptr) {
      out.view = select_at(out.view, axis, *number);
    } else if (const auto* range = std::get_if<Slice>(&one)) {
      out.view =
          slice(out.view, axis++, range->start.value_or(0), range->end.value_or(kEnd), range->step);
    } else if (std::holds_alternative<NewAxis>(one)) {
      out.view = unsqueeze(out.view, axis++);
    } else if (std::holds_alternative<Ellipsis>(one)) {
      axis += static_cast<int64_t>(x.dims().size() - used);
    } else {
      if (tensor->dtype() == DType::kBool) {
        for (size_t i = 0; i < tensor->dims().size(); ++i) {
          if (tensor->dims()[i] != out.view.dims()[static_cast<size_t>(axis) + i]) {
            refuse("index", "a mask of the axes' sizes", {&out.view.dims(), &tensor->dims()});
          }
        }
        for (const Tensor& each : positions(*tensor)) out.advanced.emplace_back(axis++, each);
      } else {
        out.advanced.emplace_back(axis++, *tensor);
      }
    }
  }
  return out;
}

}  // namespace

Tensor select_at(const Tensor& x, int64_t axis, int64_t index) {
  const size_t at = axis_of(x.dims(), axis, "select");
  const int64_t n = x.dims()[at];
  if (index < -n || index >= n) refuse("select", cat("an index like ", index), {&x.dims()});
  if (index < 0) index += n;
  return squeeze(slice(x, axis, index, index + 1), axis);
}

Tensor get(const Tensor& x, const Indices& indices) {
  const Basic in = basic(x, indices);
  if (in.advanced.empty()) return in.view;
  // The tensors' axes to the front, laid flat, by one index.
  const size_t count = in.advanced.size(), axes = in.view.dims().size();
  Axes order;
  std::optional<Tensor> place;
  Dims shape;
  for (const auto& [axis, index] : in.advanced) {
    const int64_t n = in.view.dims()[axis];
    const Tensor on = checked(index, n);
    place = place ? select(logical_or(*place < 0, on < 0), -1, *place * n + on) : on;
    order.push_back(static_cast<int64_t>(axis));
  }
  Dims rest;
  for (size_t i = 0; i < axes; ++i) {
    if (std::ranges::find(order, static_cast<int64_t>(i)) != order.end()) continue;
    order.push_back(static_cast<int64_t>(i));
    rest.push_back(in.view.dims()[i]);
  }
  Dims table{1};
  for (size_t i = 0; i < count; ++i) table[0] *= in.view.dims()[in.advanced[i].first];
  table.insert(table.end(), rest.begin(), rest.end());
  Tensor rows = take(reshape(permute(in.view, order), table), *place);
  if (in.apart || in.advanced[0].first == 0) return rows;
  // Back to where the first of them stood.
  const size_t front = place->dims().size(), before = in.advanced[0].first;
  Axes back;
  for (size_t i = 0; i < before; ++i) back.push_back(static_cast<int64_t>(front + i));
  for (size_t i = 0; i < front; ++i) back.push_back(static_cast<int64_t>(i));
  for (size_t i = before; i < rest.size(); ++i) back.push_back(static_cast<int64_t>(front + i));
  return permute(rows, back);
}

Tensor set(const Tensor& x, const Indices& indices, const Tensor& value, bool accumulate) {
  const int64_t n = count_of(x.dims());
  const Tensor places = get(reshape(iota(n, DType::kI32), x.dims()), indices);
  const Tensor values = flat(expand(cast(value, x.dtype()), places.dims()));
  const Tensor all = flat(x), at = flat(places);
  return reshape(accumulate ? all + put_add(values, at, n) : put_last(all, at, values), x.dims());
}

Tensor nonzero(const Tensor& x, std::string_view where) {
  const std::vector<int64_t> flags = evaluated(cast(cast(x, DType::kBool), DType::kI64), where);
  std::vector<int64_t> found;
  const size_t axes = x.dims().size();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    std::vector<int64_t> at(axes);
    size_t rest = i;
    for (size_t axis = axes; axis-- > 0;) {
      at[axis] = static_cast<int64_t>(rest % static_cast<size_t>(x.dims()[axis]));
      rest /= static_cast<size_t>(x.dims()[axis]);
    }
    found.insert(found.end(), at.begin(), at.end());
  }
  const auto rows = static_cast<int64_t>(flags.size()) - std::ranges::count(flags, 0);
  return home_of(x, where)->leaf(
      {DType::kI64, {rows, static_cast<int64_t>(axes)}, std::as_bytes(std::span(found))});
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const auto dims = broadcast_dims(x.dims(), mask.dims());
  if (!dims) refuse("masked_select", "shapes that broadcast", {&x.dims(), &mask.dims()});
  return take(flat(expand(x, *dims)), flat(nonzero(flat(expand(mask, *dims)), "masked_select")));
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  return select(mask, cast(value, x.dtype()), x);
}

Tensor gather_along(const Tensor& x, int64_t axis, const Tensor& index) {
  return take(flat(x), places_along(x, axis, index));
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index) {
  const size_t at = axis_of(x.dims(), axis, "index_select");
  return moved_front(take(moved_front(x, at), flat(checked(index, x.dims()[at]))), at);
}
Tensor index_copy(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from) {
  const size_t at = axis_of(x.dims(), axis, "index_copy");
  return moved_front(
      put_last(moved_front(x, at), checked(index, x.dims()[at]), moved_front(from, at)), at);
}
Tensor index_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from,
                 float alpha) {
  const size_t at = axis_of(x.dims(), axis, "index_add");
  const int64_t n = x.dims()[at];
  const Tensor added = moved_front(put_add(moved_front(from, at), checked(index, n), n), at);
  return x + (alpha == 1 ? added : added * alpha);
}
Tensor index_fill(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& value) {
  const size_t at = axis_of(x.dims(), axis, "index_fill");
  const int64_t n = x.dims()[at];
  const Tensor hit = put_add(expand(cast(1, DType::kI32), index.dims()), checked(index, n), n);
  return masked_fill(x, reshape(hit, alone(x.dims().size(), at, n)), value);
}

namespace {

// The part of `from` that an index reaches.
Tensor reached(const Tensor& from, const Tensor& index) {
  Tensor part = from.dims().size() < index.dims().size() ? expand(from, index.dims()) : from;
  for (size_t i = 0; i < index.dims().size(); ++i) {
    part = slice(part, static_cast<int64_t>(i), 0, index.dims()[i]);
  }
  if (part.dims() != index.dims()) {
    refuse("scatter", "elements for each index", {&from.dims(), &index.dims()});
  }
  return part;
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from) {
  const Tensor values = cast(reached(from, index), x.dtype());
  return reshape(put_last(flat(x), places_along(x, axis, index), flat(values)), x.dims());
}

Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from,
                      Reduce how, bool include_self) {
  const Tensor places = flat(places_along(x, axis, index)), all = flat(x);
  const Tensor values = flat(cast(reached(from, index), x.dtype()));
  const int64_t n = count_of(x.dims());
  const Op op = how == Reduce::kProd  ? Op::k_reduce_prod
                : how == Reduce::kMax ? Op::k_reduce_amax
                : how == Reduce::kMin ? Op::k_reduce_amin
                                      : Op::k_reduce_sum;
  const Tensor joined = put(op, values, places, n);
  const Tensor count = put_add(expand(cast(1, DType::kI32), values.dims()), places, n);
  const Tensor some = count > 0;
  Tensor result = joined;
  if (include_self) {
    result = how == Reduce::kProd  ? all * joined
             : how == Reduce::kMax ? maximum_or_nan(all, joined)
             : how == Reduce::kMin ? minimum_or_nan(all, joined)
                                   : all + joined;
  }
  if (how == Reduce::kMean) {
    const Tensor shares = select(some, count + (include_self ? 1 : 0), 1);
    result = is_floating(x.dtype()) ? result / cast(shares, DType::kF32)
                                    : divide(result, shares, "floor");
  }
  return reshape(select(some, cast(result, x.dtype()), all), x.dims());
}

Tensor embedding(const Tensor& index, const Tensor& table, std::optional<int64_t> padding) {
  if (!padding) return take(table, index);
  const int64_t n = table.dims()[0], at = *padding < 0 ? *padding + n : *padding;
  const Tensor kept = not_equal(iota(n, DType::kI32), at);
  return take(select(reshape(kept, {n, 1}), table, detach(table)), index);
}
Tensor embedding_bag(const Tensor& index, const Tensor& table, bool means) {
  const Tensor rows = take(table, index);
  return means ? mean(rows, {-2}) : sum(rows, {-2});
}

}  // namespace split
