// Single kernels on a device: programs of one matrix product or one attention, run many times in
// one step, so that what a step costs beside its kernels is shared. Weights and caches rotate over
// more memory than caches hold.
#pragma once

#include "bench/support/bench.h"
#include "bench/support/random_model.h"
#include "models/functional.h"

namespace split::bench {

struct MatmulShape {
  int64_t inner = 0, columns = 0;  // [R, K] by [K, M]
  DType dtype = DType::kF32;
  bool transposed = false;  // stored as [M, K], as a tied head is, and what is quantised

  double weight_bytes() const {
    return static_cast<double>(tensor_bytes(dtype, {columns, inner}).value());
  }
};

// x w for some copies of w. The device outlives it.
class MatmulBench {
 public:
  // `bytes` of weights in all, at least one copy.
  MatmulBench(Device& device, const MatmulShape& shape, uint32_t max_rows, double bytes);
  // Seconds of one product.
  double run(uint32_t rows);
  size_t copies() const { return copies_.size(); }

 private:
  Device& device_;
  std::vector<OwnedTensor> copies_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

// Attention of the last tokens of one sequence over its cache, for some layers.
class AttentionBench {
 public:
  AttentionBench(Device& device, const AttentionHeads& heads, DType cache, uint32_t context,
                 uint32_t layers);
  // Seconds of one layer's: of so many tokens.
  double run(uint32_t rows = 1);

 private:
  Device& device_;
  const uint32_t context_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

// A model's heads, as its attention has them.
AttentionHeads heads_of(const ModelConfig& config);
// Times attention over 4,096 keys where query heads share key heads, beside the same with a key
// head for each query head.
void measure_grouped_heads(const Options& options, const ModelConfig& config, Device& device,
                           Report& report);

}  // namespace split::bench
