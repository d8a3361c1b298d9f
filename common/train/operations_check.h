// Tries the operations of training on a device, each forward and backward.
#pragma once

#include <cstddef>

#include "array/plan.h"

namespace split::train {

// Computes the operations of training on `runtime`, one kernel each or fused, and compares them
// with the CPU's, one by one; gradients also with slopes. Returns how many operations there are.
// Throws Error(kDevice): which one is wrong, and by how much.
size_t check_operations(array::Runtime& runtime);

}  // namespace split::train
