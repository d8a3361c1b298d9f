// The value that goes a token's whole way: rows of a sequence, the range of points, the phase, and
// the wanted results. The wire, sessions, the batcher and the shard pass views of it (the tokens
// and hidden states are their owner's) or slices.
#pragma once

#include <cstdint>
#include <span>

#include "step/phase.h"
#include "step/range.h"
#include "step/wanted.h"

namespace split {

struct SequenceRows {
  StageRange range = {};                 // from the rows' point to the results'
  uint32_t past = 0;                     // positions of the sequence before them
  std::span<const int32_t> tokens = {};  // [count()], or
  std::span<const float> hidden = {};    // [count(), width]
  uint32_t width = 0;                    // columns of `hidden`
  Phase phase = Phase::kPrompt;
  Wanted wanted = Wanted::kLast;
  uint32_t second = 0;  // first row of a pair's second text; 0: a single text

  uint32_t count() const;
  size_t wanted_count() const { return wanted.count(count()); }
  // The rows [first, first + count) alone, behind those before them.
  SequenceRows slice(uint32_t first, uint32_t count) const;
};

}  // namespace split
