#pragma once

#include <iterator>

namespace split {

#define UNARY(...) true,
#define BINARY UNARY
#define REDUCE UNARY
#define VIEW UNARY
#define KERNEL UNARY
inline constexpr bool kEachModelOp[] = {
#include "tensor/ops.def"
};
// Rows of ops.def, which come first in Op: the operations of models and their devices.
inline constexpr size_t kModelOps = std::size(kEachModelOp);

}  // namespace split
