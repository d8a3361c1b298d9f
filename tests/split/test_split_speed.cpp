// Texts that move for the sake of speed alone: they stay while their own tokens are quicker.
#include <gtest/gtest.h>

#include "split/split_moves.h"

namespace split::test {
namespace {

// Texts that the cloud streams, and that would be foreseen to take 10 ms a token here.
class SplitForSpeed : public SplitMoves {
 protected:
  static constexpr double kHere = 10;  // ms
  static constexpr std::chrono::milliseconds kQuick{4}, kSlow{40};

  // A token of the text comes so late as `comes` says of the tokens that there are.
  std::vector<edge::Move> run(const std::function<std::chrono::microseconds(size_t out)>& comes,
                              const std::function<void(size_t, edge::Lane&)>& beside = {}) {
    const Model& model = *golden.model;
    Shard shard(*device, model, golden.weights(), options_for(model));
    Batcher tail(shard);
    GenerateOptions options = wanted();
    options.max_tokens = 50;
    edge::MoveOptions moves{.deepest = layers(), .targets = {}};
    moves.stays = [&](const edge::Quicker& there, double token_ms) {
      EXPECT_EQ(there.cut, 0);
      EXPECT_EQ(there.token_ms, kHere);
      stayed.push_back(token_ms);
    };
    edge::SplitCounts own;
    ByHand hand(cloud);
    hand.round_trip = std::chrono::milliseconds(1);
    hand.kernel = kernel;
    edge::Course course(model, edge::Move::kCloud, here_before ? &tail : nullptr, {}, own, {},
                        &moves);
    course.lane()->offer(tail, {}, edge::Quicker{0, kHere});
    TextLoop loop(model.config(), nullptr, prompt, options);
    const auto out = [&] { return loop.ids().size() - prompt.size(); };
    const auto seen = [&] {
      hand.token = comes(out());
      if (beside) beside(out(), *course.lane());
    };
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) hand.drive(course, course.meet(known - 1));
      seen();
      if (course.on_cloud()) {
        GenerateOptions rest = options;
        rest.max_tokens = static_cast<int>(loop.left());
        hand.drive(course, course.stream(loop.ids(), prompt.size(), rest),
                   [&](const ScoredToken& token) {
                     loop.token(token, {});
                     seen();
                     return !loop.ended();
                   });
      } else {
        hand.drive(course, course.run(loop.wanted()));
        loop.logits(course.results(), {});
      }
    }
    LocalForward whole(cloud.batcher());
    EXPECT_EQ(loop.take().tokens,
              generate(whole, model.config(), nullptr, prompt, options, {}).tokens);
    for (const std::string& session : course.leave()) cloud.ask({edge::Send::kClose, session});
    return own.moves;
  }
  std::vector<double> stayed;
  bool here_before = false;  // the weights, when the text begins
};

TEST_F(SplitForSpeed, ATextStaysWhileItsOwnTokensAreQuickerAndLeavesWhenTheyAreNot) {
  EXPECT_TRUE(run([](size_t) { return kQuick; }).empty());
  ASSERT_EQ(stayed.size(), 1u);  // said once
  EXPECT_NEAR(stayed[0], 4, 1.5);
  // Equal speeds are no reason to go, nor is a tenth less.
  EXPECT_TRUE(run([](size_t) { return std::chrono::milliseconds(9); }).empty());
  const std::vector<edge::Move> moves = run([](size_t out) { return out < 20 ? kQuick : kSlow; });
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].why, edge::Why::kFastest);
  EXPECT_EQ(moves[0].from, edge::Move::kCloud);
  EXPECT_EQ(moves[0].to, 0);
  EXPECT_GE(moves[0].at, 22u);
  EXPECT_LE(moves[0].at, 40u);
  // It goes as soon as it is known that they never were.
  stayed.clear();
  const std::vector<edge::Move> early = run([](size_t) { return kSlow; });
  ASSERT_EQ(early.size(), 1u);
  EXPECT_LE(early[0].at, 20u);
  EXPECT_TRUE(stayed.empty());
}

TEST_F(SplitForSpeed, OneLateTokenIsNoReasonToGo) {
  const auto late_at = [](size_t at) {
    return [at](size_t out) { return out == at ? std::chrono::milliseconds(2000) : kQuick; };
  };
  for (const size_t at : {0, 1, 3, 9, 30}) EXPECT_TRUE(run(late_at(at)).empty()) << at;
}

TEST_F(SplitForSpeed, WhatTheCloudOrSomebodyAsksForDoesNotWait) {
  const auto quick = [](size_t) { return kQuick; };
  here_before = true;
  const std::vector<edge::Move> asked = run(quick, [](size_t out, edge::Lane& lane) {
    if (out == 20) lane.aim({.cut = 0});
  });
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].why, edge::Why::kAsked);
  EXPECT_LE(asked[0].at, 30u);
  const std::vector<edge::Move> wished = run(quick, [this](size_t out, edge::Lane&) {
    if (out == 20) cloud.says = edge::CloudSays{.want = 2};
  });
  ASSERT_GE(wished.size(), 1u);
  EXPECT_EQ(wished[0].why, edge::Why::kAskedByCloud);
  EXPECT_EQ(wished[0].to, 2);
  EXPECT_LE(wished[0].at, 30u);
  // A text that is slow, and about to go, goes where the cloud wants it first.
  cloud.says = edge::CloudSays();
  kernel = std::chrono::milliseconds(150);
  const std::vector<edge::Move> both = run([](size_t) { return kSlow; },
                                           [this](size_t, edge::Lane& lane) {
                                             if (!lane.idle())
                                               cloud.says = edge::CloudSays{.want = 2};
                                           });
  ASSERT_GE(both.size(), 1u);
  EXPECT_EQ(both[0].why, edge::Why::kAskedByCloud);
  EXPECT_EQ(both[0].to, 2);
}

}  // namespace
}  // namespace split::test
