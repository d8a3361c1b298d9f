#include "device/webgpu/product_wgsl.h"

#include "base/error.h"

namespace split::webgpu {
namespace {

constexpr std::string_view kProduct =
#include "device/webgpu/shaders/product.wgsl"
    ;

}  // namespace

TapeKernel product_kernel(const Program& program, const Step& step, uint32_t block) {
  const Slot& w = program.slots[static_cast<size_t>(step.in(inputs::matmul::w))];
  TapeKernel kernel = epilogue(program, step.tape, 4);
  kernel.text = cat("const BLOCK = ", block, "u;\n", kernel.text, kProduct);
  kernel.overrides.emplace_back("K", step.inner);
  kernel.overrides.emplace_back("W_TYPE", type_code(program, w, true));
  return kernel;
}

}  // namespace split::webgpu
