// Runs a Tape over a segment of one row on the CPU: each instruction over the whole segment, in
// scratch that fits L2.
#pragma once

#include <vector>

#include "compile/program.h"
#include "device/cpu/kernels.h"

namespace split {

// Where a slot's bytes are during a step. Symbols move from step to step; the rest is fixed at
// load.
struct SlotPlace {
  std::byte* base = nullptr;
  DType dtype = DType::kF32;
  size_t columns = 0;        // elements a row
  size_t rows_of_table = 0;  // of what is gathered from
};

// One tape, made ready once. Threads may run it at once, each with scratch of its own.
class TapeRunner {
 public:
  TapeRunner(const Tape& tape, const CpuKernels& kernels);

  // Floats of scratch that run() needs for segments of at most `columns`.
  size_t scratch_floats(size_t columns) const;

  // Row `row`, columns [first, first + count). `product` holds the kernel's result for the segment,
  // or is null. An output of slot -1 goes to `unnamed`.
  void run(const std::vector<SlotPlace>& slots, size_t row, size_t first, size_t count,
           const float* product, float* unnamed, float* scratch) const;

 private:
  struct Value {
    const float* data = nullptr;  // `count` floats, or one when per_row
    bool per_row = false;
  };
  Tape tape_;
  const CpuKernels& kernels_;
  std::vector<bool> per_row_;
};

}  // namespace split
