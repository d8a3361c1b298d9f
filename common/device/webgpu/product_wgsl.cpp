#include "device/webgpu/product_wgsl.h"

#include "base/error.h"
#include "device/webgpu/merge_products.h"
#include "tensor/tensor.h"

namespace split::webgpu {

namespace {

constexpr uint32_t kGroupsOfLanes = 2;

uint32_t columns_of_lane(uint32_t block) { return block == 1 ? 2 : 4; }
const Slot& slot_of(const Program& program, const Step& step, size_t input) {
  return program.slots[static_cast<size_t>(step.in(input))];
}

}  // namespace

uint32_t product_columns(uint32_t block) { return kGroupsOfLanes * columns_of_lane(block); }

std::vector<std::string> product_bases(const Program& program, const Step& step) {
  const bool whole =
      step.inner % 8 == 0 && slot_of(program, step, inputs::matmul::x).dims[1] % 4 == 0;
  return {whole ? "rows4" : "rows1",
          is_quantised(slot_of(program, step, inputs::matmul::w).dtype) ? "blocks" : "dense",
          "product"};
}

TapeKernel product_kernel(const Program& program, const Step& step, uint32_t block) {
  const Slot& w = slot_of(program, step, inputs::matmul::w);
  TapeKernel kernel = epilogue(program, step.tape, 4);
  kernel.text = cat("const BLOCK = ", block, "u;\nconst COLS = ", columns_of_lane(block),
                    "u;\nconst AHEAD = ", block == 1 ? 4 : 1,
                    "u;\nconst PRODUCTS = ", has_twin(step) ? 2 : 1, "u;\n", kernel.text);
  CHECK(step.inputs[inputs::matmul::x].access.first == 0);
  kernel.overrides.emplace_back("K", step.inner);
  kernel.overrides.emplace_back("X_STRIDE", slot_of(program, step, inputs::matmul::x).dims[1]);
  kernel.overrides.emplace_back("OUT_ROWS", step.rows == kOutRows ? 1 : 0);
  kernel.overrides.emplace_back("W_TYPE", type_code(program, w, true));
  return kernel;
}

}  // namespace split::webgpu
