// The best moment of a training run, by how well it predicts windows that it is not trained on: the
// trained tensors then, and figures, as state of the store that its files keep too.
#pragma once

#include "train/tail.h"

namespace split::train {

class Best {
 public:
  // Adds its state to the store, which has the tail's weights. Both outlive it.
  Best(array::Store& store, const Tail& tail);

  // Sets perplexities before the first step, for those windows and for a known text (0: none).
  void begin(double unseen, double known);
  // Keeps the trained tensors after so many steps, if they predict better than any before.
  void look(double unseen, int64_t steps);
  // Puts the best tensors in place of the trained ones.
  void restore();

  float before() const { return figures()[kBefore]; }
  float known_before() const { return figures()[kKnown]; }
  float least() const { return figures()[kLeast]; }
  int64_t steps() const { return static_cast<int64_t>(figures()[kSteps]); }  // 0: before any step
  // Whether the figures may belong to a run of so many steps: files are untrusted.
  bool plausible(int64_t steps) const;

 private:
  enum Figure : uint8_t { kBefore, kKnown, kLeast, kSteps, kFigures };
  const std::vector<float>& figures() const;

  array::Store& store_;
  const Tail& tail_;
};

}  // namespace split::train
