#include "device/webgpu/product_wgsl.h"

#include "base/error.h"
#include "device/webgpu/merge_products.h"
#include "tensor/tensor.h"

namespace split::webgpu {

namespace {

// Lanes that share an output: more of a long sum are faster (768 x 3072 on an H200 1.3 times
// slower, 2048 x 16384 1.4 times faster). Their number is a part of the order of sums.
uint32_t lanes_of(const Step& step) { return step.inner < 2048 ? 32 : 64; }
// Groups of lanes: what many rows leave in shared memory is 8 KiB of every adapter's 16.
uint32_t groups_of_lanes(const Step& step, uint32_t block) {
  return block == 1 || lanes_of(step) == 32 ? 2 : 1;
}
uint32_t columns_of_lane(uint32_t block) { return block == 1 ? 2 : 4; }
const Slot& slot_of(const Program& program, const Step& step, size_t input) {
  return program.slots[static_cast<size_t>(step.in(input))];
}

}  // namespace

uint32_t product_columns(const Step& step, uint32_t block) {
  return groups_of_lanes(step, block) * columns_of_lane(block);
}

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
                    "u;\nconst LANES = ", lanes_of(step),
                    "u;\nconst OUTPUTS = ", groups_of_lanes(step, block),
                    "u;\nconst PRODUCTS = ", has_twin(step) ? 2 : 1, "u;\n", kernel.text);
  CHECK(step.inputs[inputs::matmul::x].access.first == 0);
  kernel.overrides.emplace_back("K", step.inner);
  kernel.overrides.emplace_back("X_STRIDE", slot_of(program, step, inputs::matmul::x).dims[1]);
  kernel.overrides.emplace_back("OUT_ROWS", step.rows == kOutRows ? 1 : 0);
  kernel.overrides.emplace_back("W_TYPE", type_code(program, w, true));
  return kernel;
}

}  // namespace split::webgpu
