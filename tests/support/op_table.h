// Every row of ops.def, in its order: op_table()[static_cast<size_t>(op)] is op_info(op).
#pragma once

#include "tensor/op.h"

namespace split {

inline std::span<const OpInfo> op_table() {
  return {&op_info(Op{}), static_cast<size_t>(Op::k_constant)};
}

}  // namespace split
