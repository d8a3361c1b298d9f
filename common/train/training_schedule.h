// A training run as plain data: the windows of a text, their order by steps, the rate, and the
// start of a LoRA. Depends on the seed alone, so that equal runs give equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace split::train {

// Windows of `length` positions, each with a text's begin tokens in front, one id shared with the
// next; the last fifth of the ids has windows of its own, which are not trained on. Incomplete
// windows are left out.
struct TextWindows {
  WindowSet trained, unseen;
};
WindowSet windows_of(std::span<const int32_t> ids, std::span<const int32_t> before, int64_t length);
TextWindows text_windows(std::span<const int32_t> ids, std::span<const int32_t> before,
                         int64_t length);

struct TrainingSchedule {
  static constexpr size_t kBatch = 4;
  static constexpr int64_t kWarmup = 5, kLeast = 30, kMost = 2000, kPasses = 5;
  static constexpr double kFloor = 0.1, kClip = 1;

  uint64_t seed = 0;
  int64_t steps = 0;
  size_t windows = 0;

  // Five passes over so many windows, within bounds.
  static int64_t default_steps(size_t windows);
  // The step's windows, drawn without replacement, in a new order in each pass.
  std::vector<size_t> windows_of_step(int64_t step) const;
  double factor(int64_t step) const;  // multiplies the rate
  // Whether a pass over all windows ends with this step, or the course does.
  bool ends_pass(int64_t step) const;

 private:
  std::vector<size_t> order(uint64_t pass) const;
};

optim::Options default_options(bool lora);
// Fills A uniformly within 1 / sqrt(its inputs).
void begin_lora(array::Store& store, const Tail& tail, uint64_t seed);

}  // namespace split::train
