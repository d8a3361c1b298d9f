#include "device/webgpu/product_wgsl.h"

#include "base/error.h"
#include "tensor/tensor.h"

namespace split::webgpu {

TapeKernel product_kernel(const Program& program, const Step& step, uint32_t block) {
  const Slot& w = program.slots[static_cast<size_t>(step.in(inputs::matmul::w))];
  TapeKernel kernel = epilogue(program, step.tape, 4);
  kernel.text = cat("const BLOCK = ", block, "u;\n", kernel.text);
  const Operand& x = step.inputs[inputs::matmul::x];
  const auto stride = program.slots[static_cast<size_t>(x.slot)].dims[1];
  CHECK(x.access.first == 0);
  kernel.overrides.emplace_back("K", step.inner);
  kernel.overrides.emplace_back("X_STRIDE", stride);
  kernel.overrides.emplace_back("OUT_ROWS", step.rows == kOutRows ? 1 : 0);
  kernel.overrides.emplace_back("W_TYPE", type_code(program, w, true));
  return kernel;
}

}  // namespace split::webgpu
