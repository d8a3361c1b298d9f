// Whole texts that go from one point to another together, each a sequence of its own that begins
// and ends with that: their rows lie one after the other, without padding. A view of what its owner
// has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "step/rows.h"

namespace split {

struct TextRows {
  StageRange range = {};
  std::span<const uint32_t> lengths = {};  // of each text: rows
  std::span<const int32_t> tokens = {};    // [rows], or
  std::span<const float> hidden = {};      // [rows, width]
  uint32_t width = 0;
  Wanted wanted = Wanted::kAll;

  size_t count() const { return std::accumulate(lengths.begin(), lengths.end(), size_t{0}); }
  size_t wanted_count() const {
    return std::accumulate(lengths.begin(), lengths.end(), size_t{0},
                           [&](size_t sum, uint32_t n) { return sum + wanted.count(n); });
  }
  // One after the other, as rows of sequences.
  std::vector<SequenceRows> split() const {
    std::vector<SequenceRows> all;
    size_t at = 0;
    for (const uint32_t length : lengths) {
      SequenceRows rows{.range = range, .width = width, .wanted = wanted};
      if (!tokens.empty()) rows.tokens = tokens.subspan(at, length);
      if (!hidden.empty()) rows.hidden = hidden.subspan(at * width, size_t{length} * width);
      all.push_back(std::move(rows));
      at += length;
    }
    return all;
  }
  // The texts [first, first + n) alone.
  TextRows slice(size_t first, size_t n) const {
    TextRows part = *this;
    part.lengths = lengths.first(first);
    const size_t before = part.count();
    part.lengths = lengths.subspan(first, n);
    if (!tokens.empty()) part.tokens = tokens.subspan(before, part.count());
    if (!hidden.empty()) part.hidden = hidden.subspan(before * width, part.count() * width);
    return part;
  }
};

// How many texts from `first` on have at most so many rows together: one at least.
inline size_t texts_within(std::span<const uint32_t> lengths, size_t first, size_t rows) {
  size_t end = first, sum = 0;
  for (; end < lengths.size() && (end == first || sum + lengths[end] <= rows); ++end) {
    sum += lengths[end];
  }
  return end - first;
}

}  // namespace split
