#pragma once

#include <cstddef>

namespace split {

// Rows of ops.def, which come first in Op: the operations of models and their devices.
inline constexpr size_t kModelOps = 0
#define UNARY(...) +1
#define BINARY(...) +1
#define REDUCE(...) +1
#define VIEW(...) +1
#define KERNEL(...) +1
#include "tensor/ops.def"
    ;

}  // namespace split
