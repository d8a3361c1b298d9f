// A course of training as plain data: the windows of a text, which of them a step takes, the rate,
// and how a LoRA begins. By the seed alone, so that the same course gives the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace split::train {

// Windows of `length` positions, each with what begins a text in front, one id shared with the
// next; the last fifth of the ids has windows of its own, which are not trained on. What is left
// over at an end is left out.
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
  // Drawn without putting back, in a new order in each pass.
  std::vector<size_t> windows_of_step(int64_t step) const;
  double factor(int64_t step) const;  // of the rate
  // Whether a pass over all windows ends with this step, or the course does.
  bool ends_pass(int64_t step) const;

 private:
  std::vector<size_t> order(uint64_t pass) const;
};

optim::Options default_options(bool lora);
// A uniform within 1 / sqrt(its inputs).
void begin_lora(array::Store& store, const Tail& tail, uint64_t seed);

}  // namespace split::train
