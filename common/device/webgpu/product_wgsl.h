// WGSL of a matrix product with the tape that joins it.
#pragma once

#include "device/webgpu/tape_wgsl.h"

namespace split::webgpu {

// `block`: rows that a workgroup takes. Bindings: 1 x, 2 the matrix, 3 its scales, which are one
// word where it is not in blocks; `binds` has those from 4 on.
// Overrides beside the kernel's: COLUMNS, CAPACITY, COLUMN0 and PIECE. Throws Error(kDevice) for a
// tape that WebGPU cannot run.
TapeKernel product_kernel(const Program& program, const Step& step, uint32_t block);
// The names of the kernels that stand behind it.
std::vector<std::string> product_bases(const Program& program, const Step& step);
// Columns of the result that a workgroup has, and the fewest that one of any product has.
uint32_t product_columns(const Step& step, uint32_t block);
inline constexpr uint32_t kLeastProductColumns = 4;

}  // namespace split::webgpu
