// The best moment of a course, by how well it predicts windows that it is not trained on: the
// trained tensors as they were then, and figures, as state of the store that files of it keep too.
#pragma once

#include "train/tail.h"

namespace split::train {

class Best {
 public:
  // Adds its state to the store, which has the tail's weights. Both outlive it.
  Best(array::Store& store, const Tail& tail);

  // Perplexities before the first step, of those windows and of a text that is known (0: none).
  void begin(double unseen, double known);
  // Keeps what is trained now, behind so many steps, if it predicts better than any before.
  void look(double unseen, int64_t steps);
  // Makes what is trained the best of it.
  void restore();

  float before() const { return figures()[kBefore]; }
  float known_before() const { return figures()[kKnown]; }
  float least() const { return figures()[kLeast]; }
  int64_t steps() const { return static_cast<int64_t>(figures()[kSteps]); }  // 0: at the beginning
  // Whether they may be those of a course of so many steps: they come from files, too.
  bool plausible(int64_t steps) const;

 private:
  enum Figure : uint8_t { kBefore, kKnown, kLeast, kSteps, kFigures };
  const std::vector<float>& figures() const;

  array::Store& store_;
  const Tail& tail_;
};

}  // namespace split::train
