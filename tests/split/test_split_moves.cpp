// Texts whose cut moves: when, why, and what they wait for.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "split/split_moves.h"

namespace split::test {
namespace {

// Its steps bring no wish of the cloud's any more.
TEST_F(SplitMoves, ATextThatIsAllHereForTheCloudsSakeHearsOfTheEndOfItsLoad) {
  GenerateOptions options = wanted();
  options.max_tokens = 50;
  offers = true;
  kernel = std::chrono::seconds(2);
  for (const edge::Cut start : {edge::Cut(2), edge::Cut::cloud()}) {
    cloud.looks = 0;
    cloud.says = {.want = 0};
    after_step = [&](const edge::TextSession& text_session, const edge::SplitCounts&) {
      if (text_session.tokens_out() >= 30) cloud.says = wire::LoadNote();
    };
    const Result got = run({.start = start, .moves = {{UINT32_MAX, 0}}, .asked = true}, options);
    ASSERT_EQ(got.moves.size(), 2u) << start;
    for (const edge::Move& move : got.moves) EXPECT_EQ(move.why, edge::Why::kAskedByCloud);
    EXPECT_EQ(got.moves[0].to, 0);
    EXPECT_EQ(got.moves[1].to, start);
    EXPECT_GE(got.moves[1].at, 30u);
    // Once in ten seconds, and never from elsewhere.
    EXPECT_GE(cloud.looks, 3);
    EXPECT_LE(cloud.looks, got.alone_ms / 10000 + 1);
  }
}

// It is nobody's hope to go elsewhere.
TEST_F(SplitMoves, ATextThatIsHereForItselfAsksTheCloudNothing) {
  GenerateOptions options = wanted();
  options.max_tokens = 40;
  offers = true;
  kernel = std::chrono::seconds(2);
  const Result got = run({.start = 2, .moves = {{2, 0}}, .asked = true}, options);
  ASSERT_EQ(got.moves.size(), 1u);
  EXPECT_EQ(cloud.looks, 0);
}

TEST_F(SplitMoves, ATextFollowsACloudThatWavers10SecondsBehindItsLastMove) {
  GenerateOptions options = wanted();
  options.max_tokens = 60;
  offers = true;
  kernel = std::chrono::seconds(1);
  cloud.says = {.want = 1};
  after_step = [&](const edge::TextSession& text_session, const edge::SplitCounts&) {
    cloud.says->want = text_session.tokens_out() % 2 == 0 ? std::optional(1) : std::nullopt;
  };
  const Result got = run({.start = 3, .moves = {{UINT32_MAX, 1}}, .asked = true}, options);
  ASSERT_GT(got.moved_ms.size(), 2u);
  for (size_t n = 1; n < got.moved_ms.size(); ++n) {
    EXPECT_EQ(got.moves[n].why, edge::Why::kAskedByCloud);
    EXPECT_GE(got.moved_ms[n] - got.moved_ms[n - 1], 10'000 - 3000) << n;  // but for a token's time
  }
}

TEST_F(SplitMoves, EachWayAndBack) {
  std::vector<edge::Cut> cuts = {edge::Cut::cloud()};
  for (int cut = 0; cut <= layers(); ++cut) cuts.emplace_back(cut);
  for (const edge::Cut from : cuts) {
    for (const edge::Cut to : cuts) {
      if (from == to) continue;
      const Result got = run({.start = from, .moves = {{4, to}, {8, from}}}, wanted());
      const std::vector<edge::Move>& moves = got.moves;
      EXPECT_EQ(got.counts.replays, 0u);
      ASSERT_EQ(moves.size(), 2u) << from << " " << to;
      EXPECT_EQ(moves[0].at, 4u);
      EXPECT_EQ(moves[0].from, from);
      EXPECT_EQ(moves[0].to, to);
      EXPECT_EQ(moves[0].why, edge::Why::kAsked);
      EXPECT_GE(moves[0].rows, from.blocks(layers()) == to.blocks(layers()) ? 0 : prompt.size());
      EXPECT_EQ(moves[1].at, 8u);
      EXPECT_EQ(moves[1].to, from);
      // Each row is counted where it was computed first, and the rest was computed again.
      const auto row_blocks = [&](edge::Cut cut, size_t rows) {
        return rows * static_cast<size_t>(cut.blocks(layers()));
      };
      const edge::SplitCounts& counts = got.counts;
      // The driver ends a stream before the last token is counted.
      const size_t last = from.is_cloud() ? 3 : 4;
      EXPECT_EQ(counts.work.rows, prompt.size() + 7 + last);
      EXPECT_EQ(counts.work.cloud_layer_rows,
                row_blocks(from, prompt.size() + 3) + row_blocks(to, 4) + row_blocks(from, last))
          << from << " " << to;
      EXPECT_EQ(counts.work.cloud_heads, from.is_cloud() ? 7u : to.is_cloud() ? 4u : 0u);
      EXPECT_GE(counts.cloud_layer_rows, counts.work.cloud_layer_rows);
      EXPECT_EQ(counts.losses, 0u);
    }
  }
}

// Rows of wrong guesses that this machine's blocks computed are none when they come back.
TEST_F(SplitMoves, RowsOfWrongGuessesAreGoneWhenATextComesBack) {
  GenerateOptions options = wanted();
  options.max_tokens = 24;
  options.drafts = {.most = kMostDrafts, .always = true};
  // Texts of three ids, where there is always something to guess.
  options.sampling.logit_bias = {{0, 100}, {1, 100}, {2, 100}};
  for (const edge::Cut away : {edge::Cut(layers()), edge::Cut::cloud()}) {
    for (uint32_t at = 2; at <= 12; ++at) {
      options.sampling.seed = at;
      run({.start = 1, .moves = {{at, away}, {at + 7, 1}}, .asked = true}, options, at);
    }
  }
}

// A balancer hands a text to another server and back, which still has the rows of the guesses that
// it computed last.
TEST_F(SplitMoves, AServerThatATextComesBackToHasNoRowsOfItsOwn) {
  GenerateOptions options = wanted();
  options.max_tokens = 24;
  options.drafts = {.most = kMostDrafts, .always = true};
  options.sampling.logit_bias = {{0, 100}, {1, 100}, {2, 100}};
  std::minstd_rand random(7);
  uint64_t replays = 0;
  ends_lost = true;
  cloud.before_call = [&](int) {
    if (random() % 4 == 0) cloud.change_server();
  };
  for (unsigned n = 0; n < 60; ++n) {
    options.sampling.seed = n;
    Schedule schedule{.start = 1, .moves = {}, .asked = true};
    if (n % 2 == 1) schedule = Schedule::random(random, layers(), options.max_tokens);
    replays += run(schedule, options, n).counts.replays;
    ASSERT_FALSE(HasFailure()) << n;
  }
  EXPECT_GT(replays, 60u);
}

// Without a wait, and whether a move is on its way or not.
TEST_F(SplitMoves, ACloudThatIsGoneForGoodIsNoEventWhereAllStagesAreHere) {
  leaves_lost_cloud = true;
  for (const Schedule& schedule :
       std::vector<Schedule>{{2, {{3, 1}, {6, 3}, {9, 0}}}, {3, {{11, 0}}}}) {
    const int first = cloud.calls();
    run(schedule, wanted());
    const int calls = cloud.calls() - first;
    std::ptrdiff_t all_lost = 0;
    for (int at = 1; at <= calls; ++at) {
      SCOPED_TRACE(at);
      const int begun = cloud.calls();
      cloud.before_call = [&, at](int number) {
        if (number - begun < at) return;
        cloud.forget_all();
        throw RemoteError("no answer", 0, "");
      };
      const Result got = run(schedule, wanted());
      ASSERT_FALSE(HasFailure());
      ASSERT_FALSE(got.moves.empty());
      EXPECT_EQ(got.moves.back().to, 0);
      const auto lost = std::ranges::count(got.moves, edge::Why::kCloudLost, &edge::Move::why);
      EXPECT_LE(lost, 1);  // none where the text had left it
      all_lost += lost;
      EXPECT_LE(got.slowest_ms, 3 * 75);
      cloud.before_call = {};
    }
    EXPECT_GT(all_lost, calls / 2);
  }
}

// Driven as the program does: the mover on a thread, and others that look and ask.
TEST_F(SplitMoves, TwoThreadsAndAThirdThatAsksWriteTheSameText) {
  const std::vector<int32_t> expected = SplitAlone::whole();
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  std::mutex mutex;
  Way way(cloud, mutex);
  for (int round = 0; round < (std::getenv("SPLIT_LONG") != nullptr ? 200 : 20); ++round) {
    edge::Moving moving{{.deepest = layers(), .targets = {}},
                        [&] { return std::make_unique<Way>(cloud, mutex); }};
    if (round % 2 == 0) {
      moving.options.targets = {{.cut = 0, .at = 3},
                                {.cut = 3, .at = 5},
                                {.cut = edge::Cut::cloud(), .at = 7},
                                {.cut = 1, .at = 9}};
    }
    edge::SplitCounts own;
    edge::SplitForward forward(way, model, 2, &tail, {}, waiter, own, {}, &moving);
    std::atomic<bool> over{false};
    std::thread asker([&] {
      for (edge::Cut cut; !over; cut = cut == layers()  ? edge::Cut::cloud()
                                       : cut.is_cloud() ? 0
                                                        : cut.blocks() + 1) {
        if (round % 2 == 1) forward.aim(cut, &tail, {});
        EXPECT_LE(forward.place().tokens, 12u);
        std::this_thread::yield();
      }
    });
    TextLoop loop(model.config(), nullptr, prompt, wanted());
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) forward.meet(known - 1);
      if (forward.text_session()->on_cloud()) {
        forward.stream(loop, prompt.size(), wanted(), {});
      } else {
        loop.logits(forward.run(loop.wanted()), {});
      }
    }
    const Generated text = loop.take();
    over = true;
    asker.join();
    ASSERT_EQ(text.tokens, expected) << round;
    if (round % 2 == 0) {
      EXPECT_EQ(own.moves.size(), 4u);
    }
  }
  EXPECT_EQ(cloud.sessions(), 0u);
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

TEST_F(SplitMoves, TheTokenBehindAMoveWaitsForNothingOfTheNextOne) {
  size_t seen = 0;
  after_step = [&](const edge::TextSession& text_session, const edge::SplitCounts& counts) {
    if (counts.moves.size() == seen) return;
    seen = counts.moves.size();
    EXPECT_EQ(text_session.mover()->state(), "idle") << seen;
  };
  EXPECT_EQ(run({.start = 2, .moves = {{4, 1}, {7, 3}, {10, 0}}}, wanted()).moves.size(), 3u);
  EXPECT_EQ(seen, 3u);
  // Where the next one is due at the same token nobody waits for that.
  after_step = {};
  EXPECT_EQ(run({.start = 2, .moves = {{4, 1}, {4, 3}, {4, 0}}}, wanted()).moves.size(), 3u);
}

TEST_F(SplitMoves, AStepBehindAStreamFindsItsConnectionOpen) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(),
              options_for(model, StageRange::from_block(layers(), Point::head())));
  Batcher tail(shard);
  std::mutex mutex;
  std::atomic<bool> warmed = false, stepped_warm = false;
  struct Warmed : Way {
    Warmed(FakeCloud& cloud, std::mutex& mutex, std::atomic<bool>& warmed, std::atomic<bool>& used)
        : Way(cloud, mutex), warmed(warmed), used(used) {}
    std::vector<float> ask(const edge::Send& send) override {
      if (send.call == edge::Send::kPing) {
        own = warmed = true;
        return {};
      }
      used = used || (own && send.call == edge::Send::kStep);
      return Way::ask(send);
    }
    std::atomic<bool>&warmed, &used;
    bool own = false;
  };
  Way way(cloud, mutex);
  const edge::Moving moving{{.deepest = layers(), .targets = {{.cut = layers(), .at = 4}}}, [&] {
                              return std::make_unique<Warmed>(cloud, mutex, warmed, stepped_warm);
                            }};
  edge::SplitForward forward(way, model, edge::Cut::cloud(), &tail, {}, waiter, counts, {},
                             &moving);
  TextLoop loop(model.config(), nullptr, prompt, wanted());
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!loop.ended()) {
    const auto known = static_cast<uint32_t>(loop.ids().size());
    if (known > prompt.size()) forward.meet(known - 1);
    if (!forward.text_session()->on_cloud()) {
      loop.logits(forward.run(loop.wanted()), {});
      continue;
    }
    forward.stream(loop, prompt.size(), wanted(), [&](std::string_view, const ScoredToken*) {
      while (!warmed && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
      return true;
    });
  }
  EXPECT_EQ(counts.moves.size(), 1u);
  EXPECT_TRUE(stepped_warm);
}

// A text that runs here alone makes fifty tokens in a round trip: its mover comes near only where
// it waits. What is asked for beside a text costs it no more than the rows that came meanwhile.
TEST_F(SplitMoves, ATextThatIsAskedWaitsForNothing) {
  const Result away = run({.start = 0, .moves = {{2, 3}}, .asked = true}, wanted());
  EXPECT_TRUE(away.moves.empty());
  const Result here = run({.start = 3, .moves = {{2, 0}}, .asked = true}, wanted());
  ASSERT_EQ(here.moves.size(), 1u);
  EXPECT_GT(here.moves[0].at, 2u);
  EXPECT_LE(here.slowest_ms, 2 * 75 + 20);  // the session's opening, and a step
  EXPECT_LE(here.moves[0].pause_ms, 20);
}

// A stage that landed is left again where the text is too slow there, and not gone to a second
// time.
TEST_F(SplitMoves, ATextThatIsTooSlowWhereAStageLandedGoesBack) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  GenerateOptions options = wanted();
  options.max_tokens = 100;
  edge::SplitCounts own;
  const edge::MoveOptions moves{.deepest = layers(), .targets = {}, .pace = 10};
  {
    ByHand hand(cloud);
    hand.round_trip = std::chrono::milliseconds(150);  // 7 tokens a second over a cut
    hand.token = std::chrono::milliseconds(30);
    edge::TextSession text_session(model, edge::Cut::cloud(), &tail, {}, own, {}, &moves);
    TextLoop loop(model.config(), nullptr, prompt, options);
    const std::vector<int32_t> expected = [&] {
      LocalForward forward(cloud.batcher());
      return generate(forward, model.config(), nullptr, prompt, options, {}).tokens;
    }();
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) hand.drive(text_session, text_session.meet(known - 1));
      if (text_session.on_cloud()) {
        GenerateOptions rest = options;
        rest.max_tokens = static_cast<int>(loop.left());
        hand.drive(text_session, text_session.stream(loop.ids(), prompt.size(), rest),
                   [&](const ScoredToken& token) {
                     loop.token(token, {});
                     if (loop.ids().size() == 16)
                       text_session.mover()->offer(tail, {}, {.lowest = 2, .offloads = true});
                     if (loop.ids().size() == 70)
                       text_session.mover()->offer(tail, {}, {.lowest = 1, .offloads = true});
                     return !loop.ended();
                   });
      } else {
        hand.drive(text_session, text_session.run(loop.wanted()));
        loop.logits(text_session.results(), {});
      }
    }
    EXPECT_EQ(loop.take().tokens, expected);
    for (const std::string& session : text_session.leave())
      cloud.ask({edge::Send::kClose, session});
  }
  ASSERT_EQ(own.moves.size(), 2u);
  EXPECT_EQ(own.moves[0].why, edge::Why::kLanded);
  EXPECT_EQ(own.moves[0].to, 2);
  EXPECT_EQ(own.moves[1].why, edge::Why::kGoal);
  EXPECT_EQ(own.moves[1].to, edge::Cut::cloud());
}

}  // namespace
}  // namespace split::test
