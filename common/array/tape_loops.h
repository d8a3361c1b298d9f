// The values of a tape for some rows at a time, in blocks that fit L1, by the loops that inference
// uses. For plan.cpp alone.
#pragma once

#include <span>
#include <vector>

#include "array/schedule.h"
#include "device/cpu/kernels/kernels.h"

namespace split::array {

// Where an operand's base is: floats, numbers or neither.
struct Base {
  const float* floats = nullptr;
  const int32_t* numbers = nullptr;
};

// `count` elements of what is read, in order from `begin` on. Returns them where they lie if they
// do.
const float* load(const Operand& operand, const Base& base, int64_t begin, int64_t count,
                  float* to);

class TapeLoops {
 public:
  TapeLoops() = default;
  // `rows_at_once`: that a block has at most.
  explicit TapeLoops(const Kernel& kernel);

  int64_t rows_at_once() const { return at_once_; }
  size_t scratch_floats() const;
  // Computes all values of `rows` rows, the first of which is element `begin` of what is read where
  // it has one element. Bases are those of the tape's operands, by value.
  void run(const CpuKernels& kernels, std::span<const Base> bases, int64_t begin, int64_t rows,
           float* scratch, std::span<const float*> values) const;

 private:
  struct Step {
    Value value;
    size_t room = 0;  // in the scratch
  };
  const float* spread(const Step& of, const float* data, bool full, int64_t rows,
                      float* spare) const;
  void compute(const CpuKernels& kernels, const Step& step, std::span<const float*> values,
               int64_t rows, float* out, float* spare) const;

  std::vector<Step> steps_;
  int64_t inner_ = 1, at_once_ = 1;
  size_t rooms_ = 0;
};

}  // namespace split::array
