#include "autograd/functions.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

constexpr size_t kMostAxes = 8;

// Makes a node, of the first input's type.
Tensor make(Op op, Dims dims, const std::vector<Tensor>& inputs,
            std::vector<double> attributes = {}, std::optional<DType> dtype = std::nullopt) {
  const std::string_view name = op_info(op).name;
  for (const Tensor& in : inputs) {
    if (has_rows(in.dims())) refuse(name, "sizes that are known", {&in.dims()});
    if (is_quantised(in.node()->dtype)) refuse(name, "a tensor without blocks", {&in.dims()});
  }
  if (dims.size() > kMostAxes) refuse(name, cat("at most ", kMostAxes, " axes"), {&dims});
  if (!element_count(dims)) refuse(name, "a shape that memory can hold", {&dims});
  auto node = std::make_shared<Node>();
  node->op = op;
  node->dtype = dtype ? *dtype : inputs[0].dtype();
  node->dims = std::move(dims);
  for (const Tensor& in : inputs) node->inputs.push_back(in.node());
  node->attributes = std::move(attributes);
  return Tensor(std::move(node));
}

}  // namespace

size_t axis_of(const Dims& dims, int64_t axis, std::string_view where) {
  const auto n = static_cast<int64_t>(dims.size());
  if (axis < -n || axis >= n) refuse(where, cat("an axis like ", axis), {&dims});
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

int64_t count_of(const Dims& dims) { return element_count(dims).value(); }

Tensor reshape(const Tensor& x, Dims dims) {
  const Dims wanted = dims;
  const auto left = std::ranges::find(dims, -1);
  if (left != dims.end()) {
    *left = 1;
    const auto rest = element_count(dims);
    if (rest.value_or(0) == 0) refuse("reshape", to_string(wanted), {&x.dims()});
    *left = count_of(x.dims()) / *rest;
  }
  if (element_count(dims) != element_count(x.dims())) {
    refuse("reshape", cat("as many elements as ", to_string(wanted)), {&x.dims()});
  }
  if (dims == x.dims()) return x;
  return make(Op::k_reshape, std::move(dims), {x});
}

Tensor permute(const Tensor& x, const Axes& order) {
  Dims dims;
  std::vector<double> axes;
  for (const int64_t axis : order) {
    const size_t from = axis_of(x.dims(), axis, "permute");
    dims.push_back(x.dims()[from]);
    axes.push_back(static_cast<double>(from));
  }
  auto sorted = axes;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<double>(i)) refuse("permute", "each axis once", {&order});
  }
  if (axes.size() != x.dims().size()) refuse("permute", "each axis", {&x.dims(), &order});
  if (axes == sorted) return x;
  return make(Op::k_permute, std::move(dims), {x}, std::move(axes));
}

Tensor expand(const Tensor& x, Dims dims) {
  if (dims.size() < x.dims().size()) refuse("expand", "more axes", {&x.dims(), &dims});
  const size_t fresh = dims.size() - x.dims().size();
  for (size_t i = fresh; i < dims.size(); ++i) {
    const int64_t size = x.dims()[i - fresh];
    if (dims[i] == -1) dims[i] = size;
    if (dims[i] != size && size != 1)
      refuse("expand", "axes of size 1 to grow", {&x.dims(), &dims});
  }
  if (dims == x.dims()) return x;
  Dims same_axes(fresh, 1);
  same_axes.insert(same_axes.end(), x.dims().begin(), x.dims().end());
  Tensor from = reshape(x, same_axes);
  if (dims == same_axes) return from;
  return make(Op::k_expand, std::move(dims), {from});
}

namespace {

// By starts, steps and counts of all axes.
Tensor slice_all(const Tensor& x, std::vector<double> starts_and_steps, Dims dims) {
  return make(Op::k_slice, std::move(dims), {x}, std::move(starts_and_steps));
}
std::vector<double> whole_axes(size_t axes) {
  std::vector<double> all;
  for (size_t i = 0; i < axes; ++i) all.insert(all.end(), {0, 1});
  return all;
}

}  // namespace

Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  const size_t at = axis_of(x.dims(), axis, "slice");
  const int64_t n = x.dims()[at];
  if (step <= 0) throw Error(ErrorKind::kShape, cat("[slice] expected a step from 1, got ", step));
  const auto clip = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  start = clip(start);
  end = std::max(start, clip(end));
  Dims dims = x.dims();
  dims[at] = (end - start) / step + ((end - start) % step > 0 ? 1 : 0);
  if (dims == x.dims()) return x;
  auto numbers = whole_axes(dims.size());
  numbers[2 * at] = static_cast<double>(start);
  numbers[2 * at + 1] = static_cast<double>(step);
  return slice_all(x, std::move(numbers), std::move(dims));
}

Tensor flip(const Tensor& x, const Axes& axes) {
  auto numbers = whole_axes(x.dims().size());
  for (const int64_t axis : axes) {
    const size_t at = axis_of(x.dims(), axis, "flip");
    numbers[2 * at] = static_cast<double>(std::max<int64_t>(0, x.dims()[at] - 1));
    numbers[2 * at + 1] = -1;
  }
  return slice_all(x, std::move(numbers), x.dims());
}

Tensor pad(const Tensor& x, const Dims& before, const Dims& behind, float value) {
  if (before.size() != x.dims().size() || behind.size() != before.size()) {
    refuse("pad", "two numbers an axis", {&x.dims(), &before, &behind});
  }
  Tensor cut = x;
  Dims dims;
  std::vector<double> numbers;
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t n = x.dims()[i], from = std::max<int64_t>(0, -before[i]),
                  off = std::max<int64_t>(0, -behind[i]);
    if (from > n - off) refuse("pad", "elements that are there", {&x.dims(), &before, &behind});
    cut = slice(cut, static_cast<int64_t>(i), from, n - off);
    numbers.push_back(static_cast<double>(std::max<int64_t>(0, before[i])));
    dims.push_back(cut.dims()[i] + std::max<int64_t>(0, before[i]) +
                   std::max<int64_t>(0, behind[i]));
  }
  if (dims == cut.dims()) return cut;
  numbers.push_back(value);
  return make(Op::k_pad, std::move(dims), {cut}, std::move(numbers));
}

Tensor detach(const Tensor& x) { return make(Op::k_detach, x.dims(), {x}); }

Tensor iota(int64_t n, DType dtype) {
  const int64_t most = dtype == DType::kF32 ? 1 << 24 : std::numeric_limits<int32_t>::max();
  if (n < 0 || n > most) {
    throw Error(ErrorKind::kShape, cat("[iota] expected 0 to ", most, " numbers, got ", n));
  }
  return make(Op::k_iota, {n}, {}, {}, dtype);
}

Tensor compare(Op op, const Tensor& x, const Tensor& z) {
  auto dims = broadcast_dims(x.dims(), z.dims());
  if (!dims) refuse(op_info(op).name, "shapes that broadcast", {&x.dims(), &z.dims()});
  const DType in = computing(promoted(std::vector{x, z}));
  return make(op, std::move(*dims), {cast(x, in), cast(z, in)}, {}, DType::kBool);
}

Tensor select(const Tensor& c, const Tensor& x, const Tensor& z) {
  auto both = broadcast_dims(x.dims(), z.dims());
  auto all = both ? broadcast_dims(c.dims(), *both) : std::nullopt;
  if (!all) refuse("select", "shapes that broadcast", {&c.dims(), &x.dims(), &z.dims()});
  const DType to = promoted(std::vector{x, z});
  return make(Op::k_select, std::move(*all), {cast(c, DType::kBool), cast(x, to), cast(z, to)}, {},
              to);
}

Tensor philox(const Tensor& draw, const Tensor& x, const Tensor& seed) {
  const auto both = broadcast_dims(x.dims(), seed.dims());
  auto all = both ? broadcast_dims(draw.dims(), *both) : std::nullopt;
  if (!all) refuse("philox", "shapes that broadcast", {&draw.dims(), &x.dims(), &seed.dims()});
  const auto number = [](const Tensor& of) { return cast(of, DType::kI32); };
  return make(Op::k_philox, std::move(*all), {number(draw), number(x), number(seed)}, {},
              DType::kI32);
}

namespace {

// Few long rows are reduced in runs, so that threads share them and sums stay exact; by the shape
// alone, so that the order is one order. Not where equal elements share a gradient.
constexpr int64_t kLong = 16384, kRun = 4096, kFewRows = 64;

Tensor joined(Op op, const Tensor& x, const Tensor& z) {
  return op == Op::k_reduce_sum    ? add(x, z)
         : op == Op::k_reduce_prod ? mul(x, z)
         : op == Op::k_reduce_max  ? maximum(x, z)
                                   : minimum(x, z);
}

Tensor reduce_kept(Op op, const Tensor& x, std::vector<size_t> axes) {
  Dims dims = x.dims();
  int64_t reduced = 1;
  std::vector<double> numbers;
  for (const size_t axis : axes) {
    reduced *= dims[axis];
    dims[axis] = 1;
    numbers.push_back(static_cast<double>(axis));
  }
  const bool trailing = axes.empty() || axes.back() - axes.front() + 1 == axes.size();
  const int64_t rows = count_of(dims);
  if (!trailing || axes.empty() || axes.back() + 1 != dims.size() || reduced < kLong ||
      rows >= kFewRows || rows == 0 || op == Op::k_reduce_amax || op == Op::k_reduce_amin ||
      op == Op::k_reduce_logsumexp) {
    return make(op, std::move(dims), {x}, std::move(numbers));
  }
  const Tensor flat = reshape(x, {rows, reduced});
  const int64_t whole = reduced / kRun * kRun;
  const Tensor runs = reshape(slice(flat, 1, 0, whole), {rows, whole / kRun, kRun});
  Tensor result = reduce_kept(op, reshape(reduce_kept(op, runs, {2}), {rows, whole / kRun}), {1});
  if (whole < reduced) {
    result = joined(op, result, reduce_kept(op, slice(flat, 1, whole, reduced), {1}));
  }
  return reshape(result, dims);
}

// The type of a reduction's result: sums and products of whole numbers are I64.
DType reduced_type(Op op, DType dtype) {
  return is_floating(dtype) || (op != Op::k_reduce_sum && op != Op::k_reduce_prod) ? dtype
                                                                                   : DType::kI64;
}

}  // namespace

Tensor reduce(Op op, const Tensor& x, const Axes& axes, bool keep) {
  CHECK(op_info(op).kind == OpKind::kReduce);
  std::vector<size_t> which;
  for (const int64_t axis : axes) which.push_back(axis_of(x.dims(), axis, op_info(op).name));
  if (axes.empty()) {
    which.resize(x.dims().size());
    std::iota(which.begin(), which.end(), size_t{0});
  }
  std::ranges::sort(which);
  if (std::ranges::adjacent_find(which) != which.end()) {
    refuse(op_info(op).name, "each axis once", {&x.dims(), &axes});
  }
  if (op != Op::k_reduce_sum && op != Op::k_reduce_prod && op != Op::k_reduce_logsumexp &&
      count_of(x.dims()) == 0) {
    for (const size_t axis : which) {
      if (x.dims()[axis] == 0) refuse(op_info(op).name, "an element", {&x.dims()});
    }
  }
  DType type = reduced_type(op, x.dtype());
  if (!is_floating(type) && whole_info(op).forward.empty()) type = DType::kF32;
  Tensor kept = cast(reduce_kept(op, cast(x, computing(type)), which), type);
  if (keep) return kept;
  Dims dims;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    if (!std::ranges::binary_search(which, i)) dims.push_back(x.dims()[i]);
  }
  return reshape(kept, dims);
}

namespace {

// An index laid flat, in the type that kernels read.
Tensor flat_index(const Tensor& index, std::string_view where) {
  if (is_half(index.dtype()) || index.dtype() == DType::kBool) {
    throw Error(ErrorKind::kShape, cat("[", where, "] expected an index in I32 or I64, got ",
                                       dtype_name(index.dtype())));
  }
  return reshape(cast(index, computing(index.dtype())), {count_of(index.dims())});
}

}  // namespace

Tensor take(const Tensor& table, const Tensor& index) {
  if (table.dims().empty()) refuse("take", "a table [N, ...]", {&table.dims()});
  const int64_t n = table.dims()[0];
  Dims dims = index.dims();
  dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
  const int64_t width = count_of({table.dims().begin() + 1, table.dims().end()});
  const int64_t rows = count_of(index.dims());
  return reshape(
      make(Op::k_take, {rows, width}, {reshape(table, {n, width}), flat_index(index, "take")}),
      dims);
}

Tensor put(Op op, const Tensor& rows, const Tensor& index, int64_t n) {
  const size_t axes = index.dims().size();
  if (rows.dims().size() < axes ||
      !std::equal(index.dims().begin(), index.dims().end(), rows.dims().begin())) {
    refuse("put", "rows that begin with the index's axes", {&rows.dims(), &index.dims()});
  }
  Dims dims{n};
  dims.insert(dims.end(), rows.dims().begin() + static_cast<std::ptrdiff_t>(axes),
              rows.dims().end());
  const int64_t width = count_of({dims.begin() + 1, dims.end()}), count = count_of(index.dims());
  const Tensor from = reshape(cast(rows, computing(rows.dtype())), {count, width});
  const Tensor all =
      make(Op::k_put, {n, width}, {from, flat_index(index, "put")}, {static_cast<double>(op)});
  return cast(reshape(all, dims), rows.dtype());
}

namespace {

// `function` of x [R, C], whose last axis is this one.
Tensor along(const Tensor& x, int64_t axis, const auto& function) {
  if (x.dims().empty()) return reshape(function(reshape(x, {1, 1})), {});
  const auto at = static_cast<int64_t>(axis_of(x.dims(), axis, "scan"));
  Axes order(x.dims().size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[static_cast<size_t>(at)], order.back());
  const Tensor moved = permute(x, order);
  const int64_t n = moved.dims().back();
  const int64_t rows = count_of({moved.dims().begin(), moved.dims().end() - 1});
  return permute(reshape(function(reshape(moved, {rows, n})), moved.dims()), order);
}

}  // namespace

Tensor scan(Op op, const Tensor& x, int64_t axis) {
  const DType type = reduced_type(op, x.dtype());
  return along(x, axis, [&](const Tensor& rows) {
    return cast(
        make(Op::k_scan, rows.dims(), {cast(rows, computing(type))}, {static_cast<double>(op)}),
        type);
  });
}

Tensor order(const Tensor& x, int64_t axis, bool descending) {
  return along(x, axis, [&](const Tensor& rows) {
    return make(Op::k_order, rows.dims(), {cast(rows, computing(x.dtype()))},
                {descending ? 1.0 : 0.0}, DType::kI64);
  });
}

Tensor windows(const Tensor& x, int64_t axis, int64_t size, int64_t step, int64_t dilation) {
  const size_t at = axis_of(x.dims(), axis, "windows");
  if (size <= 0 || step <= 0 || dilation <= 0 || (size - 1) * dilation >= x.dims()[at]) {
    refuse("windows",
           cat("room for windows of ", size, ", steps of ", step, ", dilated by ", dilation),
           {&x.dims()});
  }
  Dims dims = x.dims();
  dims[at] = (dims[at] - (size - 1) * dilation - 1) / step + 1;
  dims.push_back(size);
  return make(Op::k_window, std::move(dims), {x},
              {static_cast<double>(at), static_cast<double>(step), static_cast<double>(dilation)});
}

Tensor add_windows(const Tensor& windows, int64_t axis, int64_t n, int64_t step, int64_t dilation) {
  const int64_t size = windows.dims().back(),
                last = static_cast<int64_t>(windows.dims().size()) - 1;
  const auto at = static_cast<int64_t>(axis_of(windows.dims(), axis, "add_windows"));
  const int64_t count = windows.dims()[static_cast<size_t>(at)];
  const size_t axes = windows.dims().size();
  // Elements `step` apart, then all from `from` on.
  const auto spread = [&](Tensor part, int64_t each, int64_t from) {
    Dims none(part.dims().size(), 0), behind = none, joined = part.dims();
    if (each > 1) {
      part = unsqueeze(part, at + 1);
      Dims apart_none(part.dims().size(), 0), apart = apart_none;
      apart[static_cast<size_t>(at) + 1] = each - 1;
      joined[static_cast<size_t>(at)] *= each;
      part = reshape(pad(part, apart_none, apart), joined);
    }
    none[static_cast<size_t>(at)] = from;
    behind[static_cast<size_t>(at)] = n - from - part.dims()[static_cast<size_t>(at)];
    return pad(part, none, behind);
  };
  if (step >= size * dilation || (dilation == 1 && step == size)) {  // side by side
    Dims none(axes, 0), behind = none;
    behind.back() = step - size;
    if (dilation == 1) {
      Axes order;
      for (int64_t i = 0; i < last; ++i) {
        order.push_back(i);
        if (i == at) order.push_back(last);
      }
      Dims joined(windows.dims().begin(), windows.dims().end() - 1);
      joined[static_cast<size_t>(at)] = count * step;
      return spread(reshape(permute(pad(windows, none, behind), order), joined), 1, 0);
    }
  }
  std::optional<Tensor> all;
  for (int64_t k = 0; k < size; ++k) {
    const Tensor part = spread(squeeze(slice(windows, last, k, k + 1), last), step, k * dilation);
    all = all ? *all + part : part;
  }
  return *all;
}

Tensor maximum_or_nan(const Tensor& x, const Tensor& z) {
  if (!is_floating(promoted(std::vector{x, z}))) return maximum(x, z);
  return select(x == x, select(z == z, maximum(x, z), z), x);
}
Tensor minimum_or_nan(const Tensor& x, const Tensor& z) {
  if (!is_floating(promoted(std::vector{x, z}))) return minimum(x, z);
  return select(x == x, select(z == z, minimum(x, z), z), x);
}
Tensor natural_log(const Tensor& of) {
  return in_floats(
      [](const Tensor& x) {
        const Tensor large = x > 1e38f;  // in one log: the gradient of a second is NaN at 0
        return log(x * select(large, 0.5f, 1.0f)) + select(large, 0.69314718f, 0.0f);
      },
      of);
}

}  // namespace split
