// The history of a sequence: who lost rows gets them again in pieces of one phase.
#include <gtest/gtest.h>

#include "run/sequence.h"

namespace split {
namespace {

struct Piece {
  uint32_t past;
  std::vector<int32_t> tokens;
  Phase phase;
  bool operator==(const Piece&) const = default;
};

// Replays to one that has `have` rows and loses them all once, after `lost_after` pieces.
std::vector<Piece> replayed(const SequenceHistory& history, uint32_t have, uint32_t until,
                            size_t lost_after = SIZE_MAX) {
  std::vector<Piece> pieces;
  history.replay(
      until, [&] { return have; },
      [&](const SequenceRows& rows) {
        EXPECT_EQ(rows.past, have);
        EXPECT_EQ(rows.wanted, Wanted::kNone);
        pieces.push_back({rows.past, {rows.tokens.begin(), rows.tokens.end()}, rows.phase});
        have = pieces.size() == lost_after ? 0 : rows.past + rows.count();
      });
  return pieces;
}

SequenceHistory history() {
  SequenceHistory history;
  history.append(std::vector<int32_t>{1, 2, 3}, Phase::kPrompt);
  history.append(std::vector<int32_t>{4}, Phase::kGenerate);
  history.append(std::vector<int32_t>{5}, Phase::kGenerate);
  history.append(std::vector<int32_t>{6, 7}, Phase::kPrompt);
  return history;
}

TEST(SequenceHistory, IsReplayedInPiecesOfOnePhase) {
  const std::vector<Piece> all = {
      {0, {1, 2, 3}, Phase::kPrompt}, {3, {4, 5}, Phase::kGenerate}, {5, {6, 7}, Phase::kPrompt}};
  EXPECT_EQ(replayed(history(), 0, 7), all);
  EXPECT_EQ(replayed(history(), 4, 6),
            (std::vector<Piece>{{4, {5}, Phase::kGenerate}, {5, {6}, Phase::kPrompt}}));
  EXPECT_TRUE(replayed(history(), 7, 7).empty());
  EXPECT_TRUE(replayed(history(), 5, 2).empty());
}

TEST(SequenceHistory, BeginsAgainWithWhoLosesItsRowsMeanwhile) {
  const std::vector<Piece> pieces = replayed(history(), 0, 5, 1);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1], pieces[0]);
  EXPECT_EQ(pieces[2], (Piece{3, {4, 5}, Phase::kGenerate}));
}

TEST(SequenceHistory, ForgetsWhatIsCutBack) {
  SequenceHistory short_one = history();
  short_one.cut_back(4);
  EXPECT_EQ(short_one.size(), 4u);
  short_one.append(std::vector<int32_t>{9}, Phase::kPrompt);
  EXPECT_EQ(replayed(short_one, 3, 5),
            (std::vector<Piece>{{3, {4}, Phase::kGenerate}, {4, {9}, Phase::kPrompt}}));
  EXPECT_THROW(short_one.cut_back(6), std::logic_error);
}

TEST(SequenceHistory, ComesInPiecesOfABoundedSize) {
  SequenceHistory long_one;
  const uint32_t most = SequenceHistory::kPieceRows;
  long_one.append(std::vector<int32_t>(2 * most + 1, 3), Phase::kPrompt);
  std::vector<size_t> sizes;
  for (const Piece& piece : replayed(long_one, 0, long_one.size())) {
    sizes.push_back(piece.tokens.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{most, most, 1}));
}

TEST(SequenceHistory, SaysWhatItHasInCommon) {
  SequenceHistory one, other;
  EXPECT_EQ(one.common(other, true), 0u);
  one.append(std::vector<int32_t>{1, 2, 3, 4}, Phase::kPrompt);
  other.append(std::vector<int32_t>{1, 2}, Phase::kPrompt);
  EXPECT_EQ(one.common(other, false), 2u);
  EXPECT_EQ(other.common(one, false), 2u);
  other.append(std::vector<int32_t>{3, 5}, Phase::kGenerate);
  EXPECT_EQ(one.common(other, false), 2u);
  EXPECT_EQ(one.common(other, true), 3u);
}

}  // namespace
}  // namespace split
