// Texts that move by themselves: for speed alone they stay while their own tokens are quicker, and
// to spare the cloud they go where that pays.
#include <gtest/gtest.h>

#include "split/split_moves.h"

namespace split::test {
namespace {

// Texts that the cloud streams, and that would be foreseen to take 10 ms a token here.
class SplitForSpeed : public SplitMoves {
 protected:
  using SplitMoves::SplitMoves;
  static constexpr double kHere = 10;  // ms
  static constexpr std::chrono::milliseconds kQuick{4}, kSlow{40};

  // A token of the text comes so late as `comes` says of the tokens that there are.
  std::vector<edge::Move> run(const std::function<std::chrono::microseconds(size_t out)>& comes,
                              const std::function<void(size_t, edge::CutMover&)>& beside = {}) {
    const Model& model = *golden.model;
    Shard shard(*device, model, golden.weights(), options_for(model, range));
    Batcher tail(shard);
    GenerateOptions options = wanted();
    options.max_tokens = tokens;
    edge::MoveOptions moves{.deepest = layers(), .targets = {}};
    moves.stays = [&](const edge::FasterCut& there, double token_ms) {
      EXPECT_EQ(there.cut, 0);
      EXPECT_EQ(there.token_ms, kHere);
      stayed.push_back(token_ms);
    };
    own = {};
    ByHand hand(cloud);
    hand.round_trip = std::chrono::milliseconds(1);
    hand.kernel = kernel;
    edge::TextSession text_session(model, edge::Cut::cloud(), here_before ? &tail : nullptr, {},
                                   own, {}, &moves);
    text_session.mover()->expect(static_cast<uint32_t>(tokens), {});
    if (quicker) text_session.mover()->offer(tail, {}, {.quicker = edge::FasterCut{0, kHere}});
    offer = [&](const edge::LocalWeights& what) { text_session.mover()->offer(tail, {}, what); };
    TextLoop loop(model.config(), nullptr, prompt, options);
    const auto out = [&] { return loop.ids().size() - prompt.size(); };
    const auto seen = [&] {
      hand.token = comes(out());
      now = hand.now;
      if (beside) beside(out(), *text_session.mover());
    };
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) hand.drive(text_session, text_session.meet(known - 1));
      seen();
      if (text_session.on_cloud()) {
        GenerateOptions rest = options;
        rest.max_tokens = static_cast<int>(loop.left());
        hand.drive(text_session, text_session.stream(loop.ids(), prompt.size(), rest),
                   [&](const ScoredToken& token) {
                     loop.token(token, {});
                     seen();
                     return !loop.ended();
                   });
      } else {
        hand.drive(text_session, text_session.run(loop.wanted()));
        loop.logits(text_session.results(), {});
      }
    }
    LocalForward whole(cloud.batcher());
    EXPECT_EQ(loop.take().tokens,
              generate(whole, model.config(), nullptr, prompt, options, {}).tokens);
    for (const std::string& session : text_session.leave())
      cloud.ask({edge::Send::kClose, session});
    return own.moves;
  }
  StageRange range = StageRange::from_block(0, Point::head());  // here
  int tokens = 50;
  bool quicker = true;                                   // to be here, from the text's begin on
  std::function<void(const edge::LocalWeights&)> offer;  // to the text that runs
  edge::Moment now{};
  edge::SplitCounts own;
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
  EXPECT_EQ(moves[0].from, edge::Cut::cloud());
  EXPECT_EQ(moves[0].to, 0);
  EXPECT_GE(moves[0].at, 22u);
  EXPECT_LE(moves[0].at, 40u);
  EXPECT_EQ(moves[0].there_ms, kHere);
  EXPECT_GT(moves[0].token_ms, kHere);
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
  const std::vector<edge::Move> asked = run(quick, [](size_t out, edge::CutMover& mover) {
    if (out == 20) mover.aim(0);
  });
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].why, edge::Why::kAsked);
  EXPECT_LE(asked[0].at, 30u);
  const std::vector<edge::Move> wished = run(quick, [this](size_t out, edge::CutMover&) {
    if (out == 20) cloud.says = wire::LoadNote{.want = 2};
  });
  ASSERT_GE(wished.size(), 1u);
  EXPECT_EQ(wished[0].why, edge::Why::kAskedByCloud);
  EXPECT_EQ(wished[0].to, 2);
  EXPECT_LE(wished[0].at, 30u);
  // A text that is slow, and about to go, goes where the cloud wants it first.
  cloud.says = wire::LoadNote();
  kernel = std::chrono::milliseconds(150);
  const std::vector<edge::Move> both = run([](size_t) { return kSlow; },
                                           [this](size_t, edge::CutMover& mover) {
                                             if (!mover.idle())
                                               cloud.says = wire::LoadNote{.want = 2};
                                           });
  ASSERT_GE(both.size(), 1u);
  EXPECT_EQ(both[0].why, edge::Why::kAskedByCloud);
  EXPECT_EQ(both[0].to, 2);
}

// Texts of the demo model, whose goal is that the cloud has less to do: 60 tokens of a prompt and
// 360 that the cloud streams, each in 40 ms.
class SplitForTheCloud : public SplitForSpeed {
 protected:
  SplitForTheCloud() : SplitForSpeed("demo") {
    quicker = false;
    tokens = 360;
    prompt.clear();
    for (int32_t id = 0; id < 60; ++id) prompt.push_back(100 + id * 7 % 400);
  }
  // Layer-rows of the cloud alone.
  uint64_t alone() const {
    return static_cast<uint64_t>(layers()) * (prompt.size() + static_cast<size_t>(tokens) - 1);
  }
  std::vector<edge::Move> run(const std::function<void(size_t out)>& lands) {
    here_before = true;
    return SplitForSpeed::run([](size_t) { return kSlow; },
                              [&](size_t out, edge::CutMover&) { lands(out); });
  }
};

TEST_F(SplitForTheCloud, ATextWhoseWeightsLandInItsFirstHalfGivesItLessToDo) {
  for (const bool foreseen : {true, false}) {
    size_t landed = 0;
    const std::vector<edge::Move> moves = run([&](size_t out) {
      for (; landed < 9 && out >= 18 * (landed + 1); ++landed) {
        edge::LocalWeights what{.lowest = layers() - static_cast<int>(landed), .offloads = true};
        if (foreseen) what.whole_at = now + kSlow * 18 * (8 - landed);
        offer(what);
      }
    });
    ASSERT_FALSE(moves.empty());
    EXPECT_EQ(moves.back().to, 0);
    EXPECT_LE(static_cast<double>(own.cloud_layer_rows), 0.9 * static_cast<double>(alone()));
    uint64_t cost = 0;
    int64_t saved = 0;
    SCOPED_TRACE(foreseen);
    for (const edge::Move& move : moves) {
      EXPECT_EQ(move.why, edge::Why::kLanded);
      cost += move.cloud_layer_rows_cost;
      saved += move.cloud_layer_rows_saved;
    }
    EXPECT_EQ(cost, own.cloud_layer_rows_again());
    EXPECT_EQ(static_cast<int64_t>(own.cloud_layer_rows),
              static_cast<int64_t>(alone() + cost) - saved);
    if (foreseen) {
      EXPECT_EQ(moves.size(), 1u);
    }
  }
}

// The cloud takes the logits of its rows.
TEST_F(SplitForTheCloud, APartWithoutTheHeadTakesATextOver) {
  range = StageRange::from_block(3, Point::norm());
  tokens = 100;
  const std::vector<edge::Move> moves = run([&, landed = false](size_t out) mutable {
    if (out >= 5 && !std::exchange(landed, true)) offer({.lowest = 3, .offloads = true});
  });
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].to, 3);
  EXPECT_LT(own.cloud_layer_rows, alone());
}

TEST_F(SplitForTheCloud, APartOfTheModelTakesATextOverWhereThatPays) {
  const auto lands_at = [&](size_t at, int lowest) {
    return run([&, landed = false](size_t out) mutable {
      if (out < at || std::exchange(landed, true)) return;
      offer({.lowest = lowest, .offloads = true});
    });
  };
  const std::vector<edge::Move> half = lands_at(10, 4);
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half[0].to, 4);
  EXPECT_GT(half[0].cloud_layer_rows_saved, static_cast<int64_t>(half[0].cloud_layer_rows_cost));
  EXPECT_GE(half[0].cloud_layer_rows_cost, 4 * prompt.size());
  EXPECT_LT(own.cloud_layer_rows, alone());
  EXPECT_TRUE(lands_at(200, 4).empty());  // 4 x 160 to save, and 4 x 260 to fill
  EXPECT_EQ(own.cloud_layer_rows_again(), 0u);
  EXPECT_EQ(lands_at(340, 0).size(), 1u);
}

}  // namespace
}  // namespace split::test
