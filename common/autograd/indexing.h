// Reading and writing a tensor by numbers, slices, masks and tensors of indices, as PyTorch does.
// Writing is functional: the result is a new tensor. Duplicates: the last one stays.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "autograd/functions.h"

namespace split {

// From start to before end, either of which may be left out or count from the end.
struct Slice {
  std::optional<int64_t> start = {}, end = {};
  int64_t step = 1;
};
struct NewAxis {};
struct Ellipsis {};
inline constexpr NewAxis kNewAxis;    // an axis of size 1
inline constexpr Ellipsis kEllipsis;  // the axes that no other index names
inline constexpr Slice kAll;

// One of them; a tensor is a mask where it is BOOL, else it holds indices. Python's: a number takes
// its axis away.
using Index = std::variant<int64_t, Slice, NewAxis, Ellipsis, Tensor>;
using Indices = std::vector<Index>;

// A mask's result has a shape that is a value: it is evaluated, by where its leaves live.
Tensor get(const Tensor& x, const Indices& indices);
// x with `value`, which is broadcast, there; or added there, duplicates too.
Tensor set(const Tensor& x, const Indices& indices, const Tensor& value, bool accumulate = false);
// Where x is not 0, [n, axes] in I64; elements of x where a mask holds. Both are evaluated: of
// leaves that have no values, as in a step, they throw Error(kShape), which names `where`.
Tensor nonzero(const Tensor& x, std::string_view where = "nonzero");
Tensor masked_select(const Tensor& x, const Tensor& mask);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);

Tensor select_at(const Tensor& x, int64_t axis, int64_t index);
Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index);
// x with rows `from` put, added (times alpha) or filled in along an axis by an index [n].
Tensor index_copy(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from);
Tensor index_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from,
                 float alpha = 1);
Tensor index_fill(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& value);
// The elements of `from` where an index of as many axes says, along one.
Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from);
enum class Reduce : uint8_t { kSum, kProd, kMean, kMax, kMin };
Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& from,
                      Reduce how, bool include_self = true);
// Rows of a table; the row of `padding` gets no gradient.
Tensor embedding(const Tensor& index, const Tensor& table,
                 std::optional<int64_t> padding = std::nullopt);
// Its sums or means over the index's last axis.
Tensor embedding_bag(const Tensor& index, const Tensor& table, bool means);

}  // namespace split
