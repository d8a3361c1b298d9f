// Finds the temporaries of a Program that need not be floats: only products that round their rows
// read them. The steps that write them round them on the way.
#pragma once

#include <functional>
#include <vector>

#include "compile/program.h"

namespace split {

struct RoundedSlot {
  int matrix = -1;   // slot of a matrix that multiplies it; -1: it stays floats
  int buffer = 0;    // index below kRoundedBuffers, unused by others at that time
  int64_t rows = 0;  // kRows or kOutRows
};
inline constexpr int kRoundedBuffers = 2;

// For each slot. `rounds`: whether a product by this matrix rounds its rows.
std::vector<RoundedSlot> bf16_temporaries(const Program& program,
                                          const std::function<bool(const Slot&)>& rounds);

}  // namespace split
