// Types of numbers in a graph of the tensor library: PyTorch's promotion, and casts. Rows compute
// in F32, I32 or I64 alone; halves, U8 and BOOL are cast before a row and behind it, so that a
// kernel widens what it loads and rounds what it stores. Weights and rows of a step are left as
// they are: their types say how they are stored.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace split {

inline bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }
inline bool is_floating(DType dtype) { return dtype == DType::kF32 || is_half(dtype); }
// The type in which numbers of `dtype` are computed with.
DType computing(DType dtype);

// Casts to another type: to nearest even, towards zero, by its lowest bits, or whether it is not 0.
Tensor cast(const Tensor& x, DType to);
// The type of a result of these: numbers without a shape give way to tensors with one, and
// constants to both, unless they are of a higher kind (true or false, whole, floating).
DType promoted(std::span<const Tensor> tensors);
// A row's result by a node that `make` makes of inputs in the type in which it computes. Throws
// Error(kShape), with the op's name, for types without a body.
Tensor typed(Op op, const std::vector<Tensor>& inputs,
             const std::function<std::shared_ptr<Node>(const std::vector<Tensor>&)>& make);

}  // namespace split
