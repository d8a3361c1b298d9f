#include "device/webgpu/product_wgsl.h"

#include "base/error.h"

namespace split::webgpu {
namespace {

constexpr std::string_view kProduct =
#include "device/webgpu/shaders/product.wgsl"
    ;

// The code of a matrix, as product.wgsl has W_TYPE.
uint32_t matrix_code(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 2;
    case DType::kQ8_0:
      return 3;
    case DType::kQ4_0:
      return 4;
    case DType::kQ6_K:
      return 5;
    case DType::kQ4_K:
      return 6;
    default:
      throw Error(ErrorKind::kDevice, cat("[webgpu] no product by ", dtype_name(dtype)));
  }
}

}  // namespace

TapeKernel product_kernel(const Program& program, const Step& step, uint32_t block) {
  const Slot& w = program.slots[static_cast<size_t>(step.in(inputs::matmul::w))];
  TapeKernel kernel = epilogue(program, step.tape, 4);
  kernel.text = cat("const BLOCK = ", block, "u;\n", kernel.text, kProduct);
  kernel.overrides.emplace_back("K", step.inner);
  kernel.overrides.emplace_back("W_TYPE", matrix_code(w.dtype));
  return kernel;
}

}  // namespace split::webgpu
