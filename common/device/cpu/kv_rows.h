// Rows of a batch that belong together, and their keys and values on the way to their pages.
#pragma once

#include <algorithm>
#include <vector>

#include "compile/program.h"
#include "device/cpu/kernels/kernels.h"
#include "device/cpu/tape_runner.h"
#include "device/device.h"

namespace split {

// Rows of one sequence at positions that follow each other, in the order of the batch.
class RowRuns {
 public:
  // `together(row, first)`: whether a row may be of the run of a first one.
  template <typename Together>
  void find(const RowBatch& batch, const Together& together) {
    firsts_.clear();
    rows_ = batch.rows;
    for (size_t row = 0; row < rows_; ++row) {
      const bool follows = row > 0 && together(row, firsts_.back()) &&
                           batch.sequences[row] == batch.sequences[row - 1] &&
                           batch.positions[row] == batch.positions[row - 1] + 1;
      if (!follows) firsts_.push_back(row);
    }
  }
  // Runs of rows in one page.
  void find_in_pages(const RowBatch& batch) {
    find(batch, [&](size_t row, size_t) { return batch.positions[row] % kPageTokens != 0; });
  }
  size_t count() const { return firsts_.size(); }
  size_t first(size_t run) const { return firsts_[run]; }
  size_t end(size_t run) const { return run + 1 < firsts_.size() ? firsts_[run + 1] : rows_; }
  size_t run_of(size_t row) const {
    return static_cast<size_t>(std::ranges::upper_bound(firsts_, row) - firsts_.begin()) - 1;
  }

 private:
  std::vector<size_t> firsts_;  // kept from step to step
  size_t rows_ = 0;
};

// Where an attention's rows find the pages of their sequences.
struct RowPages {
  const CpuKernels& kernels;
  const Step& attention;
  const SlotPlace& keys;
  const SlotPlace& values;
  const RowBatch& batch;
  size_t pages_per_sequence;

  const uint32_t* of(size_t row) const {
    return batch.page_tables.data() + batch.sequences[row] * pages_per_sequence;
  }
  // Columns from `first` on of keys or of values of rows in one page: [rows, columns] of `from`,
  // `stride` floats apart. Other columns and rows have bytes of their own: threads may keep them at
  // once.
  void store_kv(bool are_values, size_t row, size_t rows, size_t first, size_t columns,
                const float* from, size_t stride) const {
    const Heads heads(attention);
    const auto position = static_cast<size_t>(batch.positions[row]);
    StoreKvTask task;
    task.from = from;
    task.stride = stride;
    task.rows = rows;
    task.slot = position % kPageTokens;
    task.channels = columns;
    task.head_size = heads.dim;
    task.values = are_values;
    const SlotPlace& cache = task.values ? values : keys;
    task.dtype = cache.dtype;
    task.page = cache.base + kPageTokens * (of(row)[position / kPageTokens] *
                                                kv_bytes(task.dtype, heads.kv_width()) +
                                            kv_bytes(task.dtype, first));
    kernels.store_kv(task);
  }
};

}  // namespace split
