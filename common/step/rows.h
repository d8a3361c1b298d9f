// The one value that a token's way consists of: these rows of a sequence, from here to there, in
// this phase, these of their results. The wire, sessions, the batcher and the shard hand on views
// of it (the tokens and hidden states are their owner's) or slices.
#pragma once

#include <cstdint>
#include <span>

#include "step/phase.h"
#include "step/range.h"
#include "step/wanted.h"

namespace split {

struct SequenceRows {
  StageRange range = {};                 // from what the rows are to what is wanted of them
  uint32_t past = 0;                     // positions of the sequence before them
  std::span<const int32_t> tokens = {};  // [count()], or
  std::span<const float> hidden = {};    // [count(), width]
  uint32_t width = 0;                    // of `hidden`
  Phase phase = Phase::kPrompt;
  Wanted wanted = Wanted::kLast;
  uint32_t second = 0;  // first row of a pair's second text; 0: a single text

  uint32_t count() const;
  size_t wanted_count() const { return wanted.count(count()); }
  // The rows [first, first + count) alone, behind those before them.
  SequenceRows slice(uint32_t first, uint32_t count) const;
};

}  // namespace split
