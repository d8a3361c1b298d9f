// Points, ranges and rows of a sequence: their order, their places in a model, their names, and
// what is left of them in a slice.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "step/rows.h"

namespace split {
namespace {

constexpr int kLayers = 4;
constexpr Point kTokens = Point::tokens(), kNorm = Point::norm(), kHead = Point::head(),
                kTop = Point::top();

TEST(Points, AreInTheOrderThatARowMeetsThem) {
  const std::vector<Point> points = {kTokens, 0, 1, kLayers, 1024, kNorm, kHead, kTop};
  EXPECT_TRUE(std::ranges::is_sorted(points, std::ranges::less_equal{}) &&
              std::ranges::adjacent_find(points) == points.end());
}

TEST(Points, HaveTheirStagesPlaces) {
  const std::vector<Point> points = {kTokens, 0, 1, 2, 3, 4, kNorm, kHead, kTop};
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].stage(kLayers), static_cast<int>(i) - 1) << points[i].name();
  }
  EXPECT_THROW(Point(kLayers + 1).stage(kLayers), std::logic_error);
  EXPECT_EQ(kNorm.stage(0), 1);
}

TEST(Points, KnowTheBlocksBesideThem) {
  EXPECT_EQ(kTokens.block(), 0);
  EXPECT_EQ(Point(3).block(), 3);
  EXPECT_THROW(kNorm.block(), std::logic_error);
  const std::pair<Point, int> before[] = {{kTokens, 0}, {0, 0},     {3, 3},
                                          {4, 4},       {kNorm, 4}, {kTop, 4}};
  for (const auto& [point, blocks] : before) {
    EXPECT_EQ(point.blocks_before(kLayers), blocks) << point.name();
  }
}

TEST(Points, AreReadAsTheyAreWritten) {
  for (const Point point : {Point(0), Point(3), Point(kLayers), kNorm, kHead}) {
    EXPECT_EQ(Point::parse(point.name(), kLayers), point);
  }
  EXPECT_EQ(kNorm.name(), "norm");
  EXPECT_EQ(kHead.name(), "head");
  EXPECT_EQ(Point(12).name(), "12");
  // The first and the last point are no range's that a client may ask for.
  for (const char* text : {"", "5", "-1", "+1", "1.0", "01x", " 1", "Norm", "tokens", "top", "all",
                           "18446744073709551616"}) {
    EXPECT_EQ(Point::parse(text, kLayers), std::nullopt) << text;
  }
}

TEST(StageRanges, HaveTheStagesBehindTheirStart) {
  struct Case {
    StageRange range;
    size_t begin, end;
    int blocks;
    const char* described;
  };
  const Case cases[] = {
      {{}, 0, 7, 4, "embed, blocks 0-3, norm, head"},
      {{.to = 0}, 0, 1, 0, "embed"},
      {{.to = 1}, 0, 2, 1, "embed, block 0"},
      {{0, kHead}, 1, 7, 4, "blocks 0-3, norm, head"},
      {{2, kHead}, 3, 7, 2, "blocks 2-3, norm, head"},
      {{3, kLayers}, 4, 5, 1, "block 3"},
      {{kLayers, kHead}, 5, 7, 0, "norm, head"},
      {{kLayers, kNorm}, 5, 6, 0, "norm"},
      {{kNorm, kHead}, 6, 7, 0, "head"},
      {{2, 2}, 3, 3, 0, "nothing"},
      {{3, 2}, 4, 4, 0, "nothing"},
      {{.to = kTop}, 0, 8, 4, "embed, blocks 0-3, norm, head"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(c.range.describe(kLayers), c.described);
    EXPECT_EQ(c.range.begin(kLayers), c.begin) << c.described;
    EXPECT_EQ(c.range.end(kLayers), c.end) << c.described;
    EXPECT_EQ(c.range.blocks(kLayers), c.blocks) << c.described;
    EXPECT_EQ(c.range.empty(), c.begin == c.end) << c.described;
    if (c.range.to < kTop) {
      EXPECT_EQ(c.range.stage_names(kLayers).size(), c.end - c.begin) << c.described;
    }
  }
  EXPECT_EQ((StageRange{2, kHead}.stage_names(kLayers)),
            (std::vector<std::string>{"block.2", "block.3", "norm", "head"}));
}

TEST(StageRanges, BeginWithTheEmbeddingAtTheFirstBlock) {
  EXPECT_EQ(StageRange::from_block(0, 2), (StageRange{kTokens, 2}));
  EXPECT_EQ(StageRange::from_block(1, kHead), (StageRange{1, kHead}));
  EXPECT_EQ(default_cut(12), 10);
  EXPECT_EQ(default_cut(1), 0);
}

TEST(Phases, AreNamedByOneTable) {
  for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
    EXPECT_EQ(phase_from_wire(wire_name(phase)), phase);
  }
  EXPECT_EQ(wire_name(Phase::kGenerate), "generate");
  EXPECT_EQ(metric_name(Phase::kPrompt), "prefill");
  EXPECT_EQ(metric_name(Phase::kGenerate), "decode");
  EXPECT_EQ(phase_from_wire("decode"), std::nullopt);
}

// The rows of `wanted` among `rows`.
std::vector<uint32_t> rows_of(const Wanted& wanted, uint32_t rows) {
  std::vector<uint32_t> out;
  wanted.append_to(out, rows, 0);
  EXPECT_EQ(wanted.count(rows), out.size());
  return out;
}

TEST(WantedRows, KeepTheirPlacesInSlices) {
  constexpr uint32_t kRows = 10;
  for (const Wanted& wanted : {Wanted(Wanted::kNone), Wanted(Wanted::kLast), Wanted(Wanted::kAll),
                               Wanted(std::vector<uint32_t>{0, 3, 4, 9})}) {
    for (uint32_t size = 1; size <= kRows; ++size) {
      std::vector<uint32_t> joined;
      for (uint32_t at = 0; at < kRows; at += size) {
        const uint32_t count = std::min(size, kRows - at);
        wanted.slice(kRows, at, count).append_to(joined, count, at);
      }
      EXPECT_EQ(joined, rows_of(wanted, kRows)) << "slices of " << size;
    }
  }
  EXPECT_EQ(rows_of(Wanted::kLast, 3), std::vector<uint32_t>{2});
  EXPECT_TRUE(rows_of(Wanted::kLast, 0).empty());
}

TEST(SequenceRows, AreCutIntoSlicesThatFollowOneAnother) {
  const std::vector<int32_t> tokens = {10, 11, 12, 13, 14};
  const SequenceRows rows{.range = {.to = 2},
                          .past = 7,
                          .tokens = tokens,
                          .phase = Phase::kGenerate,
                          .wanted = Wanted::kLast};
  const SequenceRows first = rows.slice(0, 2), rest = rows.slice(2, 3);
  EXPECT_EQ(first.past, 7u);
  EXPECT_EQ(rest.past, 9u);
  EXPECT_EQ(rest.range, rows.range);
  EXPECT_EQ(rest.phase, Phase::kGenerate);
  EXPECT_EQ(rest.tokens.data(), tokens.data() + 2);
  EXPECT_EQ(first.wanted_count(), 0u);
  EXPECT_EQ(rest.wanted_count(), 1u);
  EXPECT_EQ(first.count() + rest.count(), rows.count());
}

TEST(SequenceRows, CountWholeRowsOfHiddenStates) {
  const std::vector<float> hidden(12);
  const SequenceRows rows{
      .range = {1, kHead}, .past = 2, .hidden = hidden, .width = 4, .wanted = Wanted::kAll};
  EXPECT_EQ(rows.count(), 3u);
  const SequenceRows last = rows.slice(2, 1);
  EXPECT_EQ(last.hidden.data(), hidden.data() + 8);
  EXPECT_EQ(last.count(), 1u);
  EXPECT_EQ(last.past, 4u);
  EXPECT_EQ(SequenceRows().count(), 0u);
}

}  // namespace
}  // namespace split
