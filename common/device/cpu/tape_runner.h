// Runs a Tape over a segment of some rows on the CPU: each instruction over a block of them, in
// scratch that fits L2, the last where its result belongs.
#pragma once

#include <vector>

#include "compile/program.h"
#include "device/cpu/kernels/kernels.h"

namespace split {

// Where a slot's bytes are during a step. Symbols move from step to step; the rest is fixed at
// load.
struct SlotPlace {
  std::byte* base = nullptr;
  DType dtype = DType::kF32;
  size_t columns = 0;        // elements a row
  size_t rows_of_table = 0;  // rows of a gather's table
  // Results are rounded on their way, for the products that alone read them.
  const CpuKernels::Steps* rounded = nullptr;
};

// One tape, made ready once. Threads may run it at once, each with scratch of its own.
class TapeRunner {
 public:
  TapeRunner(const Tape& tape, const CpuKernels& kernels);

  // Floats of scratch that run() needs for segments of at most `columns`.
  size_t scratch_floats(size_t columns) const;

  // Columns [first, first + count) of `rows` rows from `row` on. `product` [rows, product_stride]
  // holds the kernel's result for the segment, or is null. To `elsewhere` [rows, count], of a tape
  // with one output, instead of that one's slot.
  void run(const std::vector<SlotPlace>& slots, size_t row, size_t rows, size_t first, size_t count,
           const float* product, size_t product_stride, float* scratch,
           float* elsewhere = nullptr) const;

 private:
  // Values of some rows: `count` floats each, `stride` apart, or one each when per_row, side by
  // side. Nothing by default: a block of rows has room for kMaxValues, and clearing it took an
  // eighth of a norm.
  struct Value {
    const float* data;
    size_t stride;
    bool per_row;
  };
  // `again`: after other rows of the same columns, with the same scratch.
  void run_block(const std::vector<SlotPlace>& slots, size_t row, size_t rows, size_t first,
                 size_t count, const float* product, size_t product_stride, float* scratch,
                 float* elsewhere, bool again) const;
  Value repeated(const Operand& operand, const std::vector<SlotPlace>& slots, size_t rows,
                 size_t first, size_t count, float* buffer, bool again) const;
  Value operand(const Operand& operand, const std::vector<SlotPlace>& slots, size_t row,
                size_t rows, size_t first, size_t count, float* buffer) const;
  static const float* row_of(const Value& value, size_t r, size_t count, float* spread);
  void compute(const TapeOp& op, const Value* values, size_t index, size_t rows, size_t count,
               float* out, float* spread) const;
  static void put(const Value& value, const SlotPlace& place, size_t row, size_t rows, size_t first,
                  size_t count, float* elsewhere, float* spread);
  Tape tape_;
  const CpuKernels& kernels_;
  std::vector<size_t> room_;  // each value's offset in the scratch
  size_t rooms_ = 0;
  int made_in_ = -1;  // the slot in which the last op can leave its result
};

}  // namespace split
