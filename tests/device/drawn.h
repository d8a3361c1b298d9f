// A seeded share of what multiplies (models, kernels, layouts) where time is short: SPLIT_LONG runs
// all of it.
#pragma once

#include <cstdlib>
#include <random>

#include "device/device.h"

namespace split::test {

inline bool runs_all() { return std::getenv("SPLIT_LONG") != nullptr; }

// Draws one of `of` cases, and each of them with SPLIT_LONG; the same ones in every run.
class Drawn {
 public:
  explicit Drawn(unsigned of, unsigned seed = 1) : of_(runs_all() ? 1 : of), random_(seed) {}
  // Draws from all cases on a CPU and a GPU, where they are quick.
  Drawn(const Device& device, unsigned of, unsigned seed = 1)
      : Drawn(device.can_be_lost() && !device.is_gpu() ? of : 1, seed) {}

  bool next() { return random_() % of_ == 0; }

 private:
  const unsigned of_;
  std::mt19937 random_;
};

}  // namespace split::test
