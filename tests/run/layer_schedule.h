// Random steps over a few sequences whose blocks do not all have the same rows: rows that go to
// different points together, cuts, and fills. Every result is what plain steps give, bit for bit.
#pragma once

#include <random>

#include "sequences.h"

namespace split::test {

class LayerSchedule {
 public:
  LayerSchedule(Shard& shard, unsigned seed)
      : shard_(shard), config_(shard.model().config()), random_(seed) {
    for (size_t i = 0; i < 4; ++i) lines_.emplace_back(std::make_unique<Line>(shard));
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) step();
    EXPECT_GT(fills_, 0);
    EXPECT_GT(ragged_, 0);
  }

 private:
  // A sequence, and what it should hold.
  struct Line {
    explicit Line(Shard& shard)
        : sequence(shard), filled(static_cast<size_t>(shard.model().config().layers)) {}
    Sequence sequence;
    std::vector<int32_t> tokens;
    std::vector<Phase> phases;
    std::vector<uint32_t> filled;
  };
  struct Planned {
    Line* line;
    ShardRows part;
    std::vector<int32_t> tokens;
  };

  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }

  Point any_point() {
    const std::vector<Point> behind = {Point::norm(), Point::head(), Point::top()};
    const uint32_t at = below(static_cast<size_t>(config_.layers) + 1 + behind.size());
    return at < behind.size() ? behind[at] : Point(static_cast<int>(at - behind.size()));
  }

  // Rows that all blocks up to a point have.
  static uint32_t filled(const Line& line, Point to, int layers) {
    const auto blocks = std::span(line.filled).first(size_t(to.blocks_before(layers)));
    return blocks.empty() ? static_cast<uint32_t>(line.tokens.size())
                          : *std::ranges::min_element(blocks);
  }

  // A step of one sequence, or a fill where there is something to fill.
  Planned plan(Line& line, Phase phase, uint32_t most_wanted) {
    Planned planned{&line, {line.sequence.id, {}}, {}};
    SequenceRows& rows = planned.part.rows;
    rows.range.to = any_point();
    rows.phase = phase;
    const uint32_t have = filled(line, rows.range.to, config_.layers);
    const auto length = static_cast<uint32_t>(line.tokens.size());
    rows.past = below(3) == 0 ? below(have + 1) : have;
    // Rows that are there, in this phase, from `past` on.
    uint32_t same = 0;
    while (rows.past + same < length &&
           (shard_.same_bits_in_both_phases() || line.phases[rows.past + same] == phase)) {
      ++same;
    }
    if (same > 0 && below(2) == 0) {
      const auto first = line.tokens.begin() + rows.past;
      planned.tokens.assign(first, first + 1 + below(std::min<uint32_t>(same, 20)));
      ++fills_;
    } else {
      const auto context = static_cast<uint32_t>(config_.context);
      rows.past = std::min(rows.past, context - 1);
      planned.tokens.resize(1 + below(std::min<uint32_t>(context - rows.past, 20)));
      for (int32_t& token : planned.tokens) token = int32_t(below(size_t(config_.vocab)));
      line.tokens.resize(rows.past);
      line.phases.resize(rows.past);
      line.tokens.insert(line.tokens.end(), planned.tokens.begin(), planned.tokens.end());
      line.phases.resize(line.tokens.size(), phase);
      for (uint32_t& block : line.filled) block = std::min(block, rows.past);
      shard_.pages().truncate(line.sequence.id, rows.past);
    }
    const auto count = static_cast<uint32_t>(planned.tokens.size());
    for (int block = 0; block < rows.range.to.blocks_before(config_.layers); ++block) {
      uint32_t& own = line.filled[static_cast<size_t>(block)];
      own = std::max(own, rows.past + count);
    }
    std::vector<uint32_t> wanted;
    for (uint32_t row = 0; row < count && wanted.size() < most_wanted; ++row) {
      if (below(2) == 0) wanted.push_back(row);
    }
    rows.wanted = Wanted(std::move(wanted));
    return planned;
  }

  // Rows of a sequence of its own, which runs to the point alone.
  std::vector<float> plainly(const Planned& planned) {
    const SequenceRows& rows = planned.part.rows;
    Sequence fresh(shard_);
    std::vector<float> results;
    const auto end = static_cast<uint32_t>(rows.past + planned.tokens.size());
    for (uint32_t at = 0; at < end;) {
      uint32_t next = at < rows.past ? rows.past : at + 1;
      for (uint32_t i = at; i < next; ++i) {
        if (planned.line->phases[i] != planned.line->phases[at]) next = i;
      }
      next = std::min(next, at + 16);
      SequenceRows piece{.range = rows.range,
                         .past = at,
                         .tokens = std::span(planned.line->tokens).subspan(at, next - at),
                         .phase = planned.line->phases[at],
                         .wanted = at < rows.past ? Wanted::kNone : Wanted::kAll};
      const auto& list = rows.wanted.list;
      if (at >= rows.past && std::ranges::find(list, at - rows.past) == list.end()) {
        piece.wanted = Wanted::kNone;
      }
      CHECK(shard_.pages().reserve(fresh.id, next));
      std::vector<float> out(piece.wanted_count() * shard_.width(rows.range.to));
      const ShardRows part{fresh.id, piece};
      shard_.forward({&part, 1}, out.data());
      results.insert(results.end(), out.begin(), out.end());
      at = next;
    }
    return results;
  }

  void step() {
    const Phase phase = below(2) == 0 ? Phase::kPrompt : Phase::kGenerate;
    std::ranges::shuffle(lines_, random_);
    std::vector<Planned> planned;
    const size_t count = 1 + below(lines_.size());
    for (size_t i = 0; i < count; ++i) {
      planned.push_back(
          plan(*lines_[i], phase, shard_.max_wanted(Point::head()) / uint32_t(count)));
    }
    std::ranges::stable_sort(planned, std::greater(),
                             [](const Planned& p) { return p.part.rows.range.to; });
    std::vector<ShardRows> parts;
    size_t floats = 0;
    for (Planned& p : planned) {
      p.part.rows.tokens = p.tokens;
      const auto length = static_cast<uint32_t>(p.line->tokens.size());
      ASSERT_TRUE(shard_.pages().reserve(p.part.sequence, length));
      parts.push_back(p.part);
      floats += p.part.rows.wanted_count() * shard_.width(p.part.rows.range.to);
    }
    ragged_ += parts.front().rows.range.to != parts.back().rows.range.to;
    std::vector<float> out(floats);
    shard_.forward(parts, out.data());
    std::span<const float> left = out;
    for (const Planned& p : planned) {
      const SequenceRows& rows = p.part.rows;
      const std::vector<float> expected = plainly(p);
      ASSERT_EQ(first_difference(left.first(expected.size()), expected), -1)
          << rows.count() << " rows behind " << rows.past << " to " << rows.range.to.name();
      left = left.subspan(expected.size());
      for (int block = 0; block < config_.layers; ++block) {
        ASSERT_EQ(shard_.pages().filled(p.part.sequence, block),
                  p.line->filled[static_cast<size_t>(block)]);
      }
      ASSERT_EQ(shard_.pages().length(p.part.sequence), p.line->tokens.size());
    }
    ASSERT_TRUE(left.empty());
  }

  Shard& shard_;
  const ModelConfig& config_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Line>> lines_;
  int fills_ = 0, ragged_ = 0;
};

}  // namespace split::test
