// The values of a tape for some rows at a time, in blocks that fit L1, by the loops that inference
// uses. For plan.cpp alone.
#pragma once

#include <span>
#include <vector>

#include "array/schedule.h"
#include "device/cpu/kernels/kernels.h"

namespace split::array {

// `count` elements of what is read, in order from `begin` on, as their type is computed with.
// `base`: of a buffer. Returns them where they lie if they do.
const void* load(const Operand& operand, const void* base, int64_t begin, int64_t count, void* to);

class TapeLoops {
 public:
  TapeLoops() = default;
  // `rows_at_once`: that a block has at most.
  explicit TapeLoops(const Kernel& kernel);

  int64_t rows_at_once() const { return at_once_; }
  size_t scratch_floats() const;
  // Computes all values of `rows` rows, the first of which is element `begin` of what is read where
  // it has one element. Bases are those of the tape's operands, by value.
  void run(const CpuKernels& kernels, std::span<const void* const> bases, int64_t begin,
           int64_t rows, float* scratch, std::span<const void*> values) const;

 private:
  struct Step {
    TapeValue value;
    size_t room = 0;  // in the scratch
  };
  const void* spread(const Step& of, const void* data, bool full, int64_t rows, void* spare) const;
  void compute(const CpuKernels& kernels, const Step& step, std::span<const void*> values,
               int64_t rows, void* out, float* spare) const;
  bool compute_floats(const CpuKernels& kernels, const Step& step, std::span<const void*> values,
                      int64_t rows, float* out, float* spare) const;
  int64_t room_floats() const;

  std::vector<Step> steps_;
  int64_t inner_ = 1, at_once_ = 1;
  int64_t widest_ = 1;  // floats of a number
  size_t rooms_ = 0;
};

}  // namespace split::array
