#include "tensor/types.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace split {
namespace {

// Ranks: true or false, whole, floating.
int kind_of(DType dtype) { return dtype == DType::kBool ? 0 : is_floating(dtype) ? 2 : 1; }

DType joined(DType a, DType b) {
  if (a == b) return a;
  if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;
  if (kind_of(a) == 2) return DType::kF32;  // F16 beside BF16 too
  for (const DType wide : {DType::kI64, DType::kI32}) {
    if (a == wide || b == wide) return wide;
  }
  return DType::kU8;
}

// A constant node's number, in type `to`.
double value_of(const Node& constant, DType to) {
  const double value =
      constant.attributes.empty() ? double{constant.value} : constant.attributes[0];
  switch (to) {
    case DType::kBool:
      return value != 0 ? 1 : 0;
    case DType::kI64:
      return std::trunc(value);
    case DType::kI32:
      return static_cast<int32_t>(static_cast<int64_t>(value));
    case DType::kU8:
      return static_cast<uint8_t>(static_cast<int64_t>(value));
    case DType::kF16:
      return f16_to_f32(f32_to_f16(static_cast<float>(value)));
    case DType::kBF16:
      return bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
    default:
      return static_cast<float>(value);
  }
}

bool of_a_step(const Tensor& x) { return x.node()->op == Op::k_weight || has_rows(x.dims()); }

}  // namespace

DType computing(DType dtype) {
  return is_floating(dtype) ? DType::kF32 : dtype == DType::kI64 ? dtype : DType::kI32;
}

Tensor cast(const Tensor& x, DType to) {
  const Node& node = *x.node();
  if (node.dtype == to) return x;
  if (node.op == Op::k_constant) return Tensor::number(value_of(node, to), to);
  // A widened half becomes the half that it was.
  if (node.op == Op::k_cast && node.inputs[0]->dtype == to && node.dtype == computing(to)) {
    return Tensor(node.inputs[0]);
  }
  if (is_quantised(to) || is_quantised(node.dtype)) {
    throw Error(ErrorKind::kShape, cat("[cast] expected types without blocks, got ",
                                       dtype_name(node.dtype), " to ", dtype_name(to)));
  }
  auto made = std::make_shared<Node>();
  made->op = Op::k_cast;
  made->dtype = to;
  made->dims = node.dims;
  made->inputs = {x.node()};
  return Tensor(std::move(made));
}

DType promoted(std::span<const Tensor> tensors) {
  std::optional<DType> by_rank[3];  // constants, tensors without axes, others
  for (const Tensor& tensor : tensors) {
    const size_t rank = tensor.node()->op == Op::k_constant ? 0 : tensor.dims().empty() ? 1 : 2;
    by_rank[rank] = by_rank[rank] ? joined(*by_rank[rank], tensor.dtype()) : tensor.dtype();
  }
  std::optional<DType> all;
  for (size_t rank = 3; rank-- > 0;) {
    if (!by_rank[rank]) continue;
    if (!all || kind_of(*by_rank[rank]) > kind_of(*all)) {
      all = all ? joined(*all, *by_rank[rank]) : *by_rank[rank];
    }
  }
  return all.value_or(DType::kF32);
}

Tensor typed(Op op, const std::vector<Tensor>& inputs,
             const std::function<std::shared_ptr<Node>(const std::vector<Tensor>&)>& make) {
  const auto in_f32 = [](const Tensor& x) { return x.dtype() == DType::kF32; };
  if (std::ranges::all_of(inputs, in_f32) && op_info(op).floats()) return Tensor(make(inputs));
  std::vector<Tensor> in = inputs;
  if (std::ranges::any_of(inputs, of_a_step)) {
    for (Tensor& x : in) {
      if (x.node()->op == Op::k_constant) x = cast(x, DType::kF32);
    }
    return Tensor(make(in));
  }
  DType common = promoted(inputs);
  const bool whole = !whole_info(op).forward.empty();
  if (!is_floating(common) && !whole) common = DType::kF32;
  if (is_floating(common) && !op_info(op).floats()) {
    std::string types;
    for (const Tensor& x : inputs)
      types += cat(types.empty() ? "" : " and ", dtype_name(x.dtype()));
    throw Error(
        ErrorKind::kShape,
        cat("[", op_info(op).name, "] expected whole numbers (I32, I64, U8 or BOOL), got ", types));
  }
  for (Tensor& x : in) x = cast(x, computing(common));
  std::shared_ptr<Node> made = make(in);
  made->dtype = computing(common);
  return cast(Tensor(std::move(made)), common);
}

}  // namespace split
