// Whole texts that go from one point to another together, each a sequence of its own that ends with
// the step: their rows lie one after the other, without padding. A view of its owner's memory.
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
  std::span<const uint32_t> lengths = {};  // rows of each text
  std::span<const int32_t> tokens = {};    // [rows], or
  std::span<const float> hidden = {};      // [rows, width]
  uint32_t width = 0;
  Wanted wanted = Wanted::kAll;
  std::span<const uint32_t> seconds = {};  // for each text, SequenceRows' `second`; or empty

  size_t count() const { return std::accumulate(lengths.begin(), lengths.end(), size_t{0}); }
  size_t wanted_count() const {
    return std::accumulate(lengths.begin(), lengths.end(), size_t{0},
                           [&](size_t sum, uint32_t n) { return sum + wanted.count(n); });
  }
  // The texts, one after the other, as rows of sequences.
  std::vector<SequenceRows> split() const {
    std::vector<SequenceRows> all;
    size_t at = 0;
    for (const uint32_t length : lengths) {
      SequenceRows rows{.range = range, .width = width, .wanted = wanted};
      if (!tokens.empty()) rows.tokens = tokens.subspan(at, length);
      if (!hidden.empty()) rows.hidden = hidden.subspan(at * width, size_t{length} * width);
      if (!seconds.empty()) rows.second = seconds[all.size()];
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
    if (!seconds.empty()) part.seconds = seconds.subspan(first, n);
    if (!tokens.empty()) part.tokens = tokens.subspan(before, part.count());
    if (!hidden.empty()) part.hidden = hidden.subspan(before * width, part.count() * width);
    return part;
  }
};

// The tokens of texts, one after the other, and where the second parts of pairs begin.
struct TextTokens {
  TextTokens(std::span<const std::vector<int32_t>> texts, std::span<const uint32_t> second_rows)
      : seconds(second_rows) {
    for (const std::vector<int32_t>& ids : texts) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      lengths.push_back(static_cast<uint32_t>(ids.size()));
    }
  }
  TextRows to(Point point) const {
    return {.range = {.to = point}, .lengths = lengths, .tokens = tokens, .seconds = seconds};
  }

  std::vector<int32_t> tokens;
  std::vector<uint32_t> lengths;
  std::span<const uint32_t> seconds;
};

// Most texts from `first` on with at most so many rows together: at least one.
inline size_t texts_within(std::span<const uint32_t> lengths, size_t first, size_t rows) {
  size_t end = first, sum = 0;
  for (; end < lengths.size() && (end == first || sum + lengths[end] <= rows); ++end) {
    sum += lengths[end];
  }
  return end - first;
}

}  // namespace split
