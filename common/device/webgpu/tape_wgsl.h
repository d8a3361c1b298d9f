// WGSL from a Tape: over the rows of a group, or over an element of a product's result. A text
// depends on what it computes; sizes, element types and immediate numbers are its overrides, so
// that one text serves every layer.
//
// Binding 0 is the step's symbols; `binds` has the bindings from 1 on. symbols.wgsl, and the
// functions of kernels.js that a text calls, stand before it. One row a workgroup; sums go over
// lanes strided over the row, then over lanes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compile/program.h"

namespace split::webgpu {

inline constexpr uint32_t kLanes = 256;  // in a workgroup

// Numbers from a row of a table to the next one, as weights.h packs it.
constexpr int64_t row_stride(int64_t columns) { return (columns + 7) / 8 * 8; }

struct TapeKernel {
  struct Bind {
    int slot = -1;
    bool written = false;
  };
  // A table that it gathers from, by value `value`: FIRST and END with that number override which
  // rows its binding has; rows of the step that gather another are left as they are.
  struct Table {
    size_t value = 0;
    int slot = -1;
    StepInput index = StepInput::kTokens;  // numbers the rows that it gathers
  };
  std::string text;
  std::vector<Bind> binds;
  std::vector<Table> tables;
  std::vector<std::pair<std::string, double>> overrides;  // but for COLUMNS and CAPACITY
};

// Declares a buffer of the kernel.
std::string buffer_text(uint32_t binding, std::string_view access, std::string_view name,
                        std::string_view type);
// Returns the code of a slot's type, as product.wgsl has W_TYPE; `blocks`: it may be in blocks.
// Throws Error(kDevice) for another type.
uint32_t type_code(const Program& program, const Slot& slot, bool blocks);
// Writes `fn main` over the rows of a step that is a group. Throws Error(kDevice) for a tape that
// WebGPU cannot run.
TapeKernel group_kernel(const Program& program, const Step& step);
// Writes `fn finish(r: u32, c: u32, product: f32, twin: f32)`: the tape over element [r, c] of a
// kernel's result and its twin's (merge_products.h). Its bindings begin at `first_binding`.
TapeKernel epilogue(const Program& program, const Tape& tape, uint32_t first_binding);

}  // namespace split::webgpu
