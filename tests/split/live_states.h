// Reads the bytes of a text's states that its later rows read.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "run/shard/shard_loaded.h"

namespace split::test {

// The states of the one sequence of a shard that has most rows.
class LiveStates {
 public:
  explicit LiveStates(Shard& shard) : shard_(shard) {
    const KvPages& pages = shard.pages();
    for (const auto& [id, sequence] : pages.sequences_) {
      if (!sequence.state) continue;
      ++count_;
      if (sequence_ == nullptr || sequence.length > sequence_->length) sequence_ = &sequence;
    }
  }
  // Others are of calls that were lost, and may have any rows.
  bool alone() const { return count_ == 1; }
  uint32_t filled(int block) const { return sequence_->filled[static_cast<size_t>(block)]; }

  // S before the page of `row`, the keys, deltas and decays of the page's rows before it, and the
  // rows before it that the convolution reads.
  std::vector<float> at(int block, uint32_t row) const {
    const StateShape& shape = shard_.model().state(block);
    const int first = shard_.options_.range.begin(shard_.model().config().layers);
    const auto& part = shard_.loaded_->parts[static_cast<size_t>(block + 1 - first)];
    std::vector<float> all(shape.floats()), live;
    shard_.device().read(*part.states, *sequence_->state * all.size() * sizeof(float),
                         std::as_writable_bytes(std::span(all)));
    const size_t half = row / kPageTokens % 2, open = row % kPageTokens;
    const auto take = [&](size_t from, size_t count) {
      live.insert(live.end(), all.begin() + static_cast<ptrdiff_t>(from),
                  all.begin() + static_cast<ptrdiff_t>(from + count));
    };
    take(shape.anchors(half), row < kPageTokens ? 0 : shape.anchors(1));  // zeros before that
    for (size_t channel = 0; channel < shape.key_heads * shape.key_dim; ++channel) {
      take(shape.keys(half) + channel * kPageTokens, open);
    }
    for (size_t head = 0; head < shape.value_heads; ++head) {
      take(shape.deltas(half) + head * kPageTokens * shape.value_room(), open * shape.value_room());
      take(shape.decays(half) + head * kPageTokens, open);
    }
    for (size_t back = 1; back < shape.taps && back <= row; ++back) {
      take(shape.taken() + (row - back) % shape.taken_rows() * shape.width(), shape.width());
    }
    return live;
  }

 private:
  Shard& shard_;
  const KvPages::Sequence* sequence_ = nullptr;
  size_t count_ = 0;
};

// Compares the blocks [from, to) of a shard with the whole model's, behind as many of a text's
// first `rows` as both have. Returns the number of states that were compared.
inline int expect_equal_states(Shard& shard, Shard& whole, int from, int to, uint32_t rows) {
  const LiveStates ours(shard), theirs(whole);
  int compared = 0;
  for (int block = from; block < to && ours.alone(); ++block) {
    if (!whole.model().state(block).keeps()) continue;
    const uint32_t row = std::min({rows, ours.filled(block), theirs.filled(block)});
    // A page's first rows are there until the page behind the next one begins.
    if (std::max(ours.filled(block), theirs.filled(block)) / kPageTokens > row / kPageTokens + 1) {
      continue;
    }
    const std::vector<float> a = ours.at(block, row), b = theirs.at(block, row);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
        << "state of block " << block << " behind " << row << " rows";
    ++compared;
  }
  return compared;
}

}  // namespace split::test
