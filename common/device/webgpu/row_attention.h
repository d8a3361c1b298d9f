// An attention that, in a step of one row, does what else the row's query, key and value need: it
// turns query and key and stores key and value, in place of two rotations' kernels and a store's.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/webgpu/merge_products.h"

namespace split::webgpu {

struct RowAttention {
  const Step* attention = nullptr;
  const Step *q_rotation = nullptr, *k_rotation = nullptr;  // both, or none
  const Operand *q = nullptr, *k = nullptr, *v = nullptr;   // before they are turned
  int norm = -1;  // slot of the weights of the query's and the key's norm, if they have one
};
// Finds those of a program, whose steps they point to: all whose kernel has few enough buffers.
std::vector<RowAttention> row_attentions(MergedProgram& merged);

// A text that stands before attention_row.wgsl.
struct RowKernel {
  std::string text;
  std::vector<int> read;  // slots of its bindings from 4 on
  std::vector<std::pair<std::string, double>> overrides;
};
// Throws Error(kDevice) for a type of the norm's weights that WebGPU cannot read.
RowKernel row_attention_kernel(const Program& program, const RowAttention& of);

}  // namespace split::webgpu
