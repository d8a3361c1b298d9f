// Finds the temporaries of a Program that need not be floats: those that only products read which
// round their rows. Their writers round them on the way.
#pragma once

#include <functional>
#include <vector>

#include "compile/program.h"

namespace split {

struct RoundedSlot {
  int matrix = -1;   // slot of a matrix that it is multiplied by; -1: it stays floats
  int buffer = 0;    // of kRoundedBuffers, not in use by another at that time
  int64_t rows = 0;  // kRows or kOutRows
};
inline constexpr int kRoundedBuffers = 2;

// For each slot. `rounds`: whether a product by this matrix rounds its rows.
std::vector<RoundedSlot> bf16_temporaries(const Program& program,
                                          const std::function<bool(const Slot&)>& rounds);

}  // namespace split
