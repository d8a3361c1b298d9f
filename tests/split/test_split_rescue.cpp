// Texts whose cloud is lost and whose stages are not all here: they ask for them, go on alone, and
// go back. By hand, with a clock of the test.
#include <climits>

#include "split/split_moves.h"

namespace split::test {
namespace {

class SplitRescue : public SplitMoves {
 protected:
  SplitRescue()
      : whole_shard(*device, *golden.model, golden.weights(), options_for(*golden.model)) {
    leaves_lost_cloud = true;
  }
  // The cloud gives no answer from the call on that has this number, until there is another token
  // `back_at`.
  void lose(int at, uint32_t back_at = UINT32_MAX) {
    const int begun = cloud.calls();
    cloud.before_call = [this, at, begun, back_at](int number) {
      if (number - begun < at) return;
      if (tokens_out >= back_at) return;
      if (!std::exchange(is_lost, true)) cloud.forget_all();
      throw RemoteError("no answer", 0, "");
    };
  }
  // A text at this cut, of which the tail has no more than it needs.
  edge::SplitCounts text(edge::Cut cut, bool head_here = true, int tokens = 12) {
    const Model& model = *golden.model;
    const bool on_cloud = cut.is_cloud();
    const StageRange own =
        StageRange::from_block(cut.blocks(layers()), head_here ? Point::head() : Point(layers()));
    std::optional<Shard> shard;
    std::optional<Batcher> tail;
    if (!own.empty() && !on_cloud) {
      shard.emplace(*device, model, golden.weights(), options_for(model, own));
      tail.emplace(*shard);
    }
    GenerateOptions options = wanted();
    options.max_tokens = tokens;
    options.drafts = drafts;
    edge::SplitCounts own_counts;
    const edge::MoveOptions moves{
        .deepest = cut.blocks(layers()), .targets = {}, .leaves_lost_cloud = leaves_lost_cloud};
    {
      LocalForward whole(cloud.batcher());
      ByHand hand(cloud);
      hand.round_trip = round_trip;
      hand.kernel = kernel;
      hand.token = 2 * round_trip;
      hand.rescue = [&]() -> std::shared_ptr<edge::TailSide> {
        rescued_at_ms.push_back(hand.ms());
        return has_all ? std::make_shared<edge::TailSide>(whole_tail) : nullptr;
      };
      int heads = 0;
      hand.before_forward = [&] {
        if (++heads >= heads_lost_from) throw RemoteError("no answer", 0, "");
      };
      edge::TextSession text_session(model, cut, tail ? &*tail : nullptr, {}, own_counts, {},
                                     &moves);
      TextLoop loop(model.config(), nullptr, prompt, options);
      ForwardByHand forward(hand, text_session);
      std::optional<DraftedRows> rows;
      while (!loop.ended()) {
        const auto known = static_cast<uint32_t>(loop.ids().size());
        tokens_out = known - static_cast<uint32_t>(prompt.size());
        if (known > prompt.size() && !(rows && rows->has(loop))) {
          hand.drive(text_session, text_session.meet(known - 1));
        }
        if (text_session.on_cloud()) {
          rows.reset();
          stream(hand, text_session, loop, whole, options);
          continue;
        }
        if (!rows) {
          const size_t pending = known > prompt.size() ? 1 : 0;
          rows.emplace(forward, model.config(), loop.ids().first(known - pending), options.drafts);
        }
        if (!rows->has(loop)) rows->give(forward.run(rows->step(loop)));
        const std::span<const float> got = rows->take(loop);
        const std::span<const float> expected = whole.run(loop.wanted());
        EXPECT_TRUE(std::ranges::equal(got, expected)) << tokens_out;
        loop.logits(expected, {});
      }
      for (const std::string& session : text_session.leave())
        cloud.ask({edge::Send::kClose, session});
      ended_at = text_session.cut();
    }
    EXPECT_EQ(whole_shard.pages().in_use(), 0u);
    EXPECT_EQ(cloud.sessions(), 0u);
    cloud.before_call = {};
    is_lost = false;
    return own_counts;
  }

  Shard whole_shard;
  Batcher whole_tail{whole_shard};
  std::chrono::microseconds round_trip{50000};
  uint32_t tokens_out = 0;
  bool has_all = true, is_lost = false;
  edge::Cut ended_at;
  int heads_lost_from = INT_MAX;
  std::vector<double> rescued_at_ms;
  DraftOptions drafts;
};

TEST_F(SplitRescue, ATextAtAnyCutGoesOnHereWithinThreeSeconds) {
  for (const edge::Cut cut :
       {edge::Cut(1), edge::Cut(2), edge::Cut(layers()), edge::Cut::cloud()}) {
    for (const int at : {1, 2, 5}) {
      SCOPED_TRACE(cat(cut.name(), " ", at));
      rescued_at_ms.clear();
      lose(at);
      const edge::SplitCounts got = text(cut);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(got.moves.size(), 1u);
      EXPECT_EQ(got.moves[0].why, edge::Why::kCloudLost);
      EXPECT_EQ(got.moves[0].from, cut);
      EXPECT_EQ(got.moves[0].to, 0);
      ASSERT_EQ(rescued_at_ms.size(), 1u);
      EXPECT_GE(got.moves[0].pause_ms, 0);
      EXPECT_GE(rescued_at_ms[0], 1500);
      EXPECT_LE(rescued_at_ms[0], 1500 + at * 150 + 100);  // the tokens before, and a last try
    }
  }
}

TEST_F(SplitRescue, SoDoesOneWhoseHeadIsOnTheCloud) {
  for (const int cut : {1, layers()}) {
    for (const bool of_head : {false, true}) {
      SCOPED_TRACE(cat(cut, of_head ? " head" : ""));
      if (!of_head) lose(4);
      heads_lost_from = of_head ? 3 : INT_MAX;
      const edge::SplitCounts got = text(cut, false);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(got.moves.size(), 1u);
      EXPECT_EQ(got.moves[0].why, edge::Why::kCloudLost);
    }
  }
}

TEST_F(SplitRescue, ACloudThatIsBackInASecondIsNoEvent) {
  int failures = 0;
  cloud.before_call = [&](int number) {
    if (number < 4 || failures == 3) return;
    ++failures;
    throw RemoteError("no answer", 0, "");
  };
  EXPECT_TRUE(text(2).moves.empty());
  EXPECT_EQ(failures, 3);
  EXPECT_TRUE(rescued_at_ms.empty());
}

// As long as without it, and nothing is loaded twice in vain.
TEST_F(SplitRescue, WhereAPartIsMissingTheCloudIsWaitedFor) {
  has_all = false;
  lose(4);
  EXPECT_THROW(text(2), RemoteError);
  EXPECT_EQ(rescued_at_ms.size(), 1u);
  cloud.before_call = {};
  cloud.forget_all();
  is_lost = leaves_lost_cloud = false;
  rescued_at_ms.clear();
  lose(4);
  EXPECT_THROW(text(2), RemoteError);
  EXPECT_TRUE(rescued_at_ms.empty());
}

// A step has more guesses than its text has rows by then.
TEST_F(SplitRescue, AShortTextThatIsGuessedIsTheSame) {
  DraftMemory memory;
  prompt = {5, 11};
  drafts = {.most = kMostDrafts, .always = true, .memory = &memory};
  text(2);  // is remembered
  for (int at = 1; at <= 8; ++at) {
    SCOPED_TRACE(at);
    lose(at);
    EXPECT_EQ(text(edge::Cut::cloud()).moves.size(), 1u);
  }
}

// A token takes 40 ms there, and a kernel's time here.
TEST_F(SplitRescue, ATextGoesBackWhereThatIsQuickerAlone) {
  round_trip = std::chrono::milliseconds(20);
  for (const bool slow_here : {true, false}) {
    SCOPED_TRACE(slow_here);
    kernel = std::chrono::milliseconds(slow_here ? 600 : 1);
    lose(20, 40);
    const edge::SplitCounts got = text(edge::Cut::cloud(), true, 100);
    ASSERT_FALSE(HasFailure());
    ASSERT_EQ(got.moves.size(), slow_here ? 2u : 1u);
    EXPECT_EQ(ended_at, slow_here ? edge::Cut::cloud() : edge::Cut(0));
    if (!slow_here) continue;
    EXPECT_EQ(got.moves[1].why, edge::Why::kFastest);
    EXPECT_GE(got.moves[1].at, 40u);
  }
}

}  // namespace
}  // namespace split::test
