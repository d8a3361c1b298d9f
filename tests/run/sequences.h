// Rows of sequences through a Shard, as tests of run/ feed them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "support/golden_model.h"
#include "support/run_program.h"

namespace split::test {

// Results by row; empty where a row was not asked for.
using Rows = std::vector<std::vector<float>>;

// `count` tokens of a sequence, in one step of many.
struct Part {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
};

// One step. Logits only of the last rows of each part, as many as a step may have.
inline std::vector<Rows> run_step(Shard& shard, Point to, const std::vector<Part>& parts,
                                  Phase phase = Phase::kPrompt) {
  std::vector<ShardRows> rows;
  const size_t each = shard.max_wanted(to) / parts.size();
  size_t wanted = 0;
  for (const Part& part : parts) {
    const auto count = static_cast<uint32_t>(part.tokens.size());
    const uint32_t past = shard.pages().length(part.sequence);
    std::vector<uint32_t> last(std::min<size_t>(count, each));
    std::iota(last.begin(), last.end(), count - static_cast<uint32_t>(last.size()));
    wanted += last.size();
    rows.push_back({part.sequence,
                    {.range = {.to = to},
                     .past = past,
                     .tokens = part.tokens,
                     .phase = phase,
                     .wanted = Wanted(std::move(last))}});
    CHECK(shard.pages().reserve(part.sequence, past + count));
  }
  const size_t width = shard.width(to);
  std::vector<float> out(wanted * width);
  shard.forward(rows, out.data());
  std::vector<Rows> results;
  const float* next = out.data();
  for (const ShardRows& r : rows) {
    Rows& result = results.emplace_back(r.rows.count());
    for (const uint32_t i : r.rows.wanted.list) {
      result[i].assign(next, next + width);
      next += width;
    }
  }
  return results;
}

// A sequence that is closed at the end.
struct Sequence {
  explicit Sequence(Shard& shard) : shard(shard), id(shard.pages().open()) {}
  ~Sequence() { shard.pages().close(id); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Appends the tokens in steps of `slice` rows.
  Rows run(Point to, std::span<const int32_t> tokens, size_t slice, Phase phase = Phase::kPrompt) {
    Rows rows;
    for (size_t at = 0; at < tokens.size(); at += slice) {
      const auto part = tokens.subspan(at, std::min(slice, tokens.size() - at));
      auto results = run_step(shard, to, {{id, part}}, phase);
      std::move(results[0].begin(), results[0].end(), std::back_inserter(rows));
    }
    return rows;
  }
  Shard& shard;
  SequenceId id;
};

inline void expect_same(std::span<const std::vector<float>> got,
                        std::span<const std::vector<float>> expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  size_t compared = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    if (got[row].empty() || expected[row].empty()) continue;
    ASSERT_EQ(first_difference(got[row], expected[row]), -1) << what << ", row " << row;
    ++compared;
  }
  ASSERT_GT(compared, 0u) << what;
}

}  // namespace split::test
