// A matrix product of a step, for its tasks: each has some columns, and takes some rows at a time.
#pragma once

#include <algorithm>

#include "device/cpu/kernels/kernels.h"

namespace split {

struct CpuProduct {
  const CpuKernels& kernels;
  const CpuKernels::Steps* rounded = nullptr;  // how the rows were rounded; null: they are floats
  const std::byte* x = nullptr;                // all rows
  const std::byte* w = nullptr;                // the packed matrix
  DType stored = DType::kF32;                  // its packed type,
  Rounding packing = Rounding::kBF16;          // the rows that it is packed for
  DType dtype = DType::kF32;                   // type that multiplies: for blocks perhaps BF16
  bool transposed = false;
  size_t inner = 0, width = 0;  // K, M
  size_t each = 0;              // columns of a task: whole strips or panels

  bool dequantises() const { return dtype != stored; }
  // Rows that are multiplied together: whole pairs of tiles; for rounded rows about a part of L2,
  // by the steps taken at a time if columns alone make enough tasks.
  size_t rows_of_block(bool enough_columns) const {
    constexpr size_t kLeast = 64, kMost = 256, kPair = 32, kBytes = size_t{768} << 10;
    if (rounded == nullptr) return kMost;
    if (rounded->part > 0 && enough_columns) return kBytes / (rounded->part * rounded->step);
    const size_t fit = kBytes / rounded_bytes(1, inner, rounded->step);
    return std::clamp(fit / kPair * kPair, kLeast, kMost);
  }
  size_t scratch_floats() const {
    return kKernelFloats + (dequantises() ? strips_of(each) * strip_bytes() / sizeof(float) : 0);
  }
  // Prepares the scratch that a task's rows share.
  void begin(size_t first, size_t columns, float* scratch) const {
    if (!dequantises()) return;
    const size_t steps = steps_of(inner);
    auto* const to = reinterpret_cast<std::byte*>(scratch + kKernelFloats);
    for (size_t strip = 0; strip < strips_of(columns); ++strip) {
      kernels.dequantise(w + (first / kStripColumns + strip) * steps * step_bytes(stored), stored,
                         packing, steps, to + strip * strip_bytes());
    }
  }
  // y [rows, each]: rows from `row` on by columns from `first` on.
  void multiply(size_t row, size_t rows, size_t first, size_t columns, float* scratch,
                float* y) const {
    if (rounded == nullptr) {
      MatmulTask task;
      task.x = reinterpret_cast<const float*>(x) + row * inner;
      task.rows = rows;
      task.w = w;
      task.dtype = dtype;
      task.inner = inner;
      task.width = width;
      task.first = first;
      task.columns = columns;
      task.y = y;
      task.y_stride = each;
      task.panel = scratch;
      return (transposed ? kernels.matmul_transposed : kernels.matmul)(task);
    }
    StepTask task;
    task.x = x + rounded_bytes(row, inner, rounded->step);
    task.rows = rows;
    task.w = dequantises() ? reinterpret_cast<const std::byte*>(scratch + kKernelFloats) : w;
    task.dtype = dtype;
    task.inner = inner;
    task.cached = dequantises();
    task.first = dequantises() ? 0 : first;
    task.columns = columns;
    task.y = y;
    task.y_stride = each;
    task.scratch = reinterpret_cast<std::byte*>(scratch);
    rounded->matmul(task);
  }

 private:
  size_t strip_bytes() const { return steps_of(inner) * step_bytes(dtype); }
  static constexpr size_t kKernelFloats = std::max(kPanelFloats, kStepScratch / sizeof(float));
};

}  // namespace split
