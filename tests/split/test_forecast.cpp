// Tests by arithmetic what answers teach the next plan, and the record that keeps it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "edge_client/measure/forecasts.h"
#include "edge_client/split/receipt.h"
#include "support/temporary_folder.h"

namespace split::edge {
namespace {

PlanInput shape() {
  PlanInput input;
  input.layers = 4;
  input.channels = 100;
  input.download_bytes = {500, 400, 300, 200, 100};
  input.missing_bytes = input.download_bytes;
  return input;
}

PlanFacts facts() {
  PlanFacts facts;
  facts.network = Network{10, 0, 0};
  facts.edge = Speed{.block_ms = 2, .block_row_ms = 0.5, .head_ms = 3, .head_row_ms = 1};
  facts.cloud = Speed{.block_ms = 1, .head_ms = 1};
  return facts;
}

PlanInput with(const PlanFacts& facts, bool drafts = true) {
  PlanInput input = shape();
  input.know(facts, drafts);
  return input;
}

// A text whose first token came after 100 ms, and each of `tokens` more like this.
AnswerWatch watched(int tokens, double ms, double cloud_ms, double wire_ms) {
  AnswerWatch watch;
  SplitCounts counts;
  counts.steps = 1;
  for (int i = 0; i <= tokens; ++i) {
    watch.token(counts, 100 + i * ms);
    counts.traffic.cloud_ms += cloud_ms;
    counts.traffic.wire_ms += wire_ms;
    counts.traffic.bytes_down += 700;
    ++counts.steps;
  }
  return watch;
}

TEST(Forecast, ComparesWithWhatTheTextTook) {
  const PlanFacts known = facts();
  const Forecast forecast = forecast_of(with(known), 2, watched(10, 24, 3, 12));
  // 10.1 on the way, two blocks of 1 there, two of 2 and the head here.
  EXPECT_NEAR(*forecast.predicted.token_ms, 10.1 + 2 + 4 + 3, 1e-9);
  EXPECT_NEAR(*forecast.actual.token_ms, 24, 1e-9);
  EXPECT_NEAR(*forecast.actual.cloud_ms, 3, 1e-9);
  EXPECT_NEAR(*forecast.actual.bytes, 700, 1e-9);
  EXPECT_NEAR(*forecast.actual.first_token_ms, 100, 1e-9);
  EXPECT_NEAR(*forecast.error(), (24 - 19.1) / 24, 1e-9);
}

TEST(Forecast, CountsFromTheLastMoveOn) {
  AnswerWatch watch;
  SplitCounts counts;
  for (int i = 0; i < 5; ++i) watch.token(counts, 50 * i);
  counts.moves.resize(1);
  for (int i = 0; i < 4; ++i) watch.token(counts, 300 + 7 * i);
  EXPECT_EQ(watch.tokens(), 3u);
  EXPECT_NEAR(watch.token_ms(), 7, 1e-9);
  EXPECT_FALSE(watch.first_token_ms());
}

TEST(Forecast, LearnsEachPartOfASplitToken) {
  PlanFacts known = facts();
  const AnswerWatch watch = watched(10, 24, 3, 12);
  learn(known, with(known), 2, watch);
  const Correction& learnt = known.correction;
  // By four fifths: two blocks of 1 there, 10.1 on the way, two of 2 and the head here.
  EXPECT_NEAR(learnt.cloud.of(2), 2.8, 1e-9);
  EXPECT_NEAR(learnt.wire.of(10.1), 10.1 + 1.9 * 0.8, 1e-9);
  EXPECT_NEAR(learnt.edge.of(7), 8.6, 1e-9);
  EXPECT_EQ(learnt.stream.of(5), 5);
  // The next ones by less.
  learn(known, with(known), 2, watch);
  EXPECT_NEAR(learnt.cloud.of(2), 2.8 + 0.3 * 0.2, 1e-9);
  for (int i = 0; i < 30; ++i) learn(known, with(known), 2, watch);
  EXPECT_LT(*forecast_of(with(known), 2, watch).error(), 1e-3);
}

TEST(Forecast, TheWaitForOthersStepsIsNoLesson) {
  PlanFacts known = facts();
  known.cloud->step_ms = 40;  // a busy cloud
  known.cloud->busy_step_ms = 30;
  // A token of two blocks there waits; one of a stream is in each of those steps.
  EXPECT_NEAR(*forecast_of(with(known), 2, watched(10, 64, 43, 12)).predicted.token_ms, 19.1 + 40,
              1e-9);
  EXPECT_NEAR(*forecast_of(with(known), Cut::cloud(), watched(10, 64, 0, 0)).predicted.token_ms, 30,
              1e-9);
  learn(known, with(known), 2, watched(10, 64, 43, 12));
  EXPECT_NEAR(known.correction.cloud.of(2), 2.8, 1e-9);
  known.cloud->step_ms = 0;  // and then an idle one
  EXPECT_NEAR(*forecast_of(with(known), 2, watched(10, 24, 3, 12)).predicted.cloud_ms, 2.8, 1e-9);
}

TEST(Forecast, LearnsAStreamAndATextHereAsAWhole) {
  PlanFacts known = facts();
  learn(known, with(known), Cut::cloud(), watched(10, 7, 7, 0));
  EXPECT_NEAR(known.correction.stream.of(5), 6.6, 1e-9);
  learn(known, with(known), 0, watched(10, 22, 0, 0));
  EXPECT_NEAR(known.correction.edge.of(11), 19.8, 1e-9);
  EXPECT_EQ(known.correction.cloud.of(2), 2);
}

// Prices all here by what answers on a busy machine taught, and ten more at one place.
double here_after_ten(Cut busy_cut, Cut cut, double times) {
  PlanFacts known = facts();
  const auto answer = [&](Cut at, double slower) {
    // An idle cloud and line take what was measured.
    const bool cloud = at.is_cloud();
    const double there = cloud ? 0 : at.blocks(), edge = slower * (2 * (4 - there) + 3);
    const double wire = !cloud && at > 0 ? 10.1 : 0;
    const AnswerWatch watch =
        cloud ? watched(10, 5, 0, 0) : watched(10, there + wire + edge, there, wire);
    learn(known, with(known), at, watch);
  };
  for (int i = 0; i < 20; ++i) answer(busy_cut, times);
  EXPECT_GT(*price_places(with(known))[1].token_ms, 1.5 * 11) << times;
  for (int i = 0; i < 10; ++i) answer(cut, 1);
  return *price_places(with(known))[1].token_ms;
}

TEST(Forecast, WhatABusyMachineTaughtIsGoneAfterTenAnswers) {
  for (const double times : {2., 5., 12.}) {
    for (const Cut busy_cut : {Cut(0), Cut(1), Cut(4)}) {
      for (const Cut cut : {Cut::cloud(), Cut(0), Cut(1), Cut(2), Cut(3), Cut(4)}) {
        const double here = here_after_ten(busy_cut, cut, times);
        EXPECT_LE(here, 1.5 * 11) << times << " " << busy_cut << " " << cut;
        EXPECT_GE(here, 11 / 1.5) << times << " " << busy_cut << " " << cut;
      }
    }
  }
}

// A machine that is always slower than it was measured is not forgotten while texts run here.
TEST(Forecast, KeepsWhatEachAnswerHereConfirms) {
  PlanFacts known = facts();
  for (int i = 0; i < 50; ++i) learn(known, with(known), 0, watched(10, 33, 0, 0));
  EXPECT_NEAR(*price_places(with(known))[1].token_ms, 33, 0.1);
}

TEST(Forecast, LearnsNothingFromAFewTokensAndNothingWithoutBounds) {
  PlanFacts known = facts();
  learn(known, with(known), 0, watched(7, 100, 0, 0));
  EXPECT_EQ(known.correction.edge.factor, 1);
  learn(known, with(known), 0, watched(8, 1e7, 0, 0));
  EXPECT_EQ(known.correction.edge.factor, 10);
  learn(known, with(known), Cut::cloud(), watched(8, 1e-9, 0, 0));
  for (int i = 0; i < 20; ++i) learn(known, with(known), Cut::cloud(), watched(8, 1e-9, 0, 0));
  EXPECT_GE(known.correction.stream.of(5), 0.5);
}

TEST(Forecast, LearnsHowManyGuessesPay) {
  PlanFacts known = facts();
  AnswerWatch watch;
  SplitCounts counts;
  double ms = 0;
  // Each step of 4 rows gives 2 tokens: 4 blocks of 2 + 3 x 0.5, and a head of 3 + 3.
  for (int i = 0; i <= 20; ++i) {
    watch.token(counts, ms);
    if (i % 2 == 1) continue;
    ++counts.steps;
    counts.drafted += 3;
    ms += 20;
  }
  learn(known, with(known), 0, watch);
  EXPECT_NEAR(known.local.rows, 4, 1e-9);
  EXPECT_NEAR(known.local.tokens, 2, 1e-9);
  EXPECT_NEAR(known.correction.edge.factor, 1, 1e-9);
  EXPECT_NEAR(*price_places(with(known))[1].token_ms, 10, 1e-9);
  EXPECT_NEAR(*price_places(with(known, false))[1].token_ms, 11, 1e-9);
}

// Guesses that stopped cost nothing any more.
TEST(Forecast, ForgetsGuessesThatAreNotSent) {
  PlanFacts known = facts();
  known.split = {5, 4};
  for (int i = 0; i < 20; ++i) learn(known, with(known), 2, watched(10, 24, 3, 12));
  EXPECT_NEAR(known.split.rows, 1, 0.01);
  EXPECT_NEAR(known.split.tokens, 1, 0.01);
  known.split = {5, 4};  // of a text that could send none nothing is learnt
  learn(known, with(known, false), 2, watched(10, 24, 3, 12));
  EXPECT_EQ(known.split.rows, 5);
}

TEST(Forecast, CountsTheMoneyOfAnAnswer) {
  PlanFacts known = facts();
  known.prices = Prices{.hour = 3.6, .egress_gb = 0.09};
  SplitCounts counts;
  counts.traffic.cloud_ms = 500;
  counts.traffic.bytes_down = 2'000'000;
  const AnswerCost cost = cost_of(with(known), 2, counts, 1'000'000'000, 10, 20);
  EXPECT_NEAR(cost.cloud, 500e-6, 1e-12);
  EXPECT_NEAR(cost.egress, 0.00018, 1e-12);
  EXPECT_NEAR(cost.weights, 0.09, 1e-12);
  EXPECT_NEAR(*cost.all_cloud, 20 * 5e-6 + 20 * 330 * 0.09e-9, 1e-12);
  EXPECT_TRUE(cost.break_even_tokens);
  known.prices = Prices{.hour = 0.01, .egress_gb = 0.09};
  EXPECT_FALSE(cost_of(with(known), 2, counts, 0, 10, 20).break_even_tokens);
}

TEST(PlanMemory, KeepsWhatItWasToldForItsKeyAlone) {
  const test::TemporaryFolder folder;
  const ShardCache cache(folder.path);
  const PlanMemory memory(cache, "http://a", "m", "cpu");
  EXPECT_FALSE(memory.recall().edge);
  PlanFacts kept = facts();
  kept.prices = Prices{1, 2};
  kept.correction.wire = {1.25, -0.5};
  kept.split = {4, 2.5};
  memory.remember(kept);
  const PlanFacts got = PlanMemory(cache, "http://a", "m", "cpu").recall();
  EXPECT_EQ(got.network->rtt_ms, 10);
  EXPECT_EQ(got.edge->head_row_ms, 1);
  EXPECT_EQ(got.cloud->block_ms, 1);
  EXPECT_EQ(got.prices->egress_gb, 2);
  EXPECT_EQ(got.correction.wire.factor, 1.25);
  EXPECT_EQ(got.correction.wire.extra_ms, -0.5);
  EXPECT_EQ(got.split.tokens, 2.5);
  EXPECT_FALSE(PlanMemory(cache, "http://b", "m", "cpu").recall().edge);
  EXPECT_FALSE(PlanMemory(cache, "http://a", "m", "vulkan").recall().edge);
}

TEST(PlanMemory, TakesADamagedRecordForNone) {
  const test::TemporaryFolder folder;
  const PlanMemory memory(ShardCache(folder.path), "http://a", "m", "cpu");
  memory.remember(facts());
  const auto path = std::filesystem::directory_iterator(folder.path / "plans")->path();
  for (const char* text : {"", "{", "{\"server\":1}", "[]",
                           (R"({"server":"http://a","model":"m","here":"cpu","network":null,)"
                            R"("edge":null,"cloud":null,"prices":null,"learnt":{"edge":-1}})")}) {
    std::ofstream(path) << text;
    EXPECT_FALSE(memory.recall().network) << text;
  }
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_FALSE(memory.recall().network);
}

TEST(Forecasts, TakesEachAnswersLessonIntoTheNextPlan) {
  const test::TemporaryFolder folder;
  const PlanMemory memory(ShardCache(folder.path), "http://a", "m", "cpu");
  Receipt receipt;
  receipt.cut = 2;
  receipt.prompt_tokens = 3;
  receipt.tokens = 11;
  const AnswerWatch watch = watched(10, 24, 3, 12);
  {
    Forecasts forecasts(memory, shape(), {});
    forecasts.describe(receipt, watch, false);
    EXPECT_FALSE(receipt.forecast);  // nothing is known
    forecasts.measured(facts().network, facts().edge, CloudLoad{facts().cloud, Prices{3.6, 0}, {}});
    forecasts.describe(receipt, watch, false);
    EXPECT_EQ(receipt.forecast->why, Why::kAsked);
    EXPECT_NEAR(*receipt.forecast->predicted.token_ms, 19.1, 1e-9);
    EXPECT_NEAR(receipt.cost->cloud, 0, 1e-12);
    EXPECT_NEAR(*forecasts.learn(receipt, watch, false), (24 - 19.1) / 24, 1e-9);
    forecasts.describe(receipt, watch, false);
    EXPECT_NEAR(*receipt.forecast->predicted.token_ms, 19.1 + 0.8 * (24 - 19.1), 1e-9);
  }
  Forecasts again(memory, shape(), {});  // the next run
  again.describe(receipt, watch, false);
  EXPECT_NEAR(*receipt.forecast->predicted.token_ms, 19.1 + 0.8 * (24 - 19.1), 1e-9);
  EXPECT_NE(to_text(receipt).find("plan      cut 2 (asked): 23.0 ms a token foreseen, 24.0 ms "
                                  "taken (4 % off)"),
            std::string::npos)
      << to_text(receipt);
}

// A disk that is slow to keep them has no say in what is here.
TEST(Forecasts, PlanMissesNoWeightsThatAreLoaded) {
  const test::TemporaryFolder folder;
  PlanInput input = shape();
  input.missing_bytes = input.download_bytes = {50, 40, 30, 20, 10};
  input.layers = 4;
  const Forecasts forecasts(PlanMemory(ShardCache(folder.path), "http://a", "m", "cpu"), input, {});
  EXPECT_EQ(forecasts.plan("m", true).input.missing_bytes, input.missing_bytes);
  EXPECT_EQ(forecasts.plan("m", true, 2).input.missing_bytes,
            (std::vector<uint64_t>{50, 40, 0, 0, 0}));
  EXPECT_EQ(forecasts.plan("m", true, 0).input.missing_bytes, std::vector<uint64_t>(5));
}

TEST(Forecasts, SayWhyATextThatCouldRunHereStayedOnTheCloud) {
  const test::TemporaryFolder folder;
  Forecasts forecasts(PlanMemory(ShardCache(folder.path), "http://a", "m", "cpu"), shape(),
                      {.goal = Goal::kFast, .pace = 10, .chosen = true});
  Receipt receipt;
  receipt.cut = Cut::cloud();
  receipt.prompt_tokens = 3;
  receipt.tokens = 11;
  const auto why = [&](double token_ms) {
    forecasts.describe(receipt, watched(10, token_ms, 0, 0), false);
    return receipt.forecast->why;
  };
  EXPECT_FALSE(forecasts.choose(0));  // nothing was measured
  forecasts.measured(facts().network, facts().edge, CloudLoad{facts().cloud, {}, {}});
  const auto now = forecasts.choose(0);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->begin, Cut::cloud());
  EXPECT_EQ(why(5), Why::kFastest);
  EXPECT_NE(to_text(receipt).find("plan      all on the cloud (fastest): 5.00 ms a token foreseen, "
                                  "5.00 ms taken (0 % off)"),
            std::string::npos)
      << to_text(receipt);
  EXPECT_NE(to_text(receipt).find("; all here would take 11.0 ms\n"), std::string::npos)
      << to_text(receipt);
  // It began there, and it is too soon for another place.
  Speed slow = *facts().cloud;
  slow.block_ms = 10;
  forecasts.measured({}, {}, CloudLoad{slow, {}, {}});
  EXPECT_EQ(forecasts.choose(0)->begin, Cut::cloud());
  EXPECT_EQ(why(30), Why::kFastest);
  // The weights here decide: a cut of all four blocks takes longer.
  forecasts.choose(4);
  EXPECT_EQ(why(30), Why::kFastest);
}

// The weights came meanwhile.
TEST(Forecasts, SayWhyATextStayedOnACloudThatWasForeseenToBeSlower) {
  const test::TemporaryFolder folder;
  Forecasts forecasts(PlanMemory(ShardCache(folder.path), "http://a", "m", "cpu"), shape(),
                      {.goal = Goal::kFast, .pace = 10, .chosen = true});
  Receipt receipt;
  receipt.cut = Cut::cloud();
  const auto why = [&](double token_ms) {
    forecasts.describe(receipt, watched(10, token_ms, 0, 0), false);
    return receipt.forecast->why;
  };
  Speed slow = *facts().cloud;
  slow.block_ms = 10;
  forecasts.measured(facts().network, facts().edge, CloudLoad{slow, {}, {}});
  EXPECT_EQ(why(5), Why::kOnlyFit);  // before they came
  EXPECT_EQ(forecasts.choose(0)->begin, 0);
  EXPECT_EQ(why(5), Why::kFastest);
  EXPECT_EQ(why(30), Why::kOnlyFit);
  slow.block_ms = 2.75;  // 12 ms a token: 11 is less, but not by a tenth
  forecasts.measured({}, {}, CloudLoad{slow, {}, {}});
  EXPECT_EQ(why(30), Why::kFastest);
}

TEST(Receipts, SayWhatALostCloudTookApart) {
  Receipt receipt;
  receipt.prompt_tokens = 4;
  receipt.tokens = receipt.max_tokens = 10;
  receipt.finish_reason = FinishReason::kLength;
  receipt.counts.ms = 6036;
  receipt.first_token_ms = 36;
  receipt.waited_ms = 5100;
  receipt.counts.edge_ms = 931;
  receipt.first.edge_ms = 31;
  const auto says = [&](const char* words) {
    EXPECT_NE(to_text(receipt).find(words), std::string::npos) << words << "\n" << to_text(receipt);
  };
  says("10 tokens in 6.04 s (first after 36 ms, then 10.0 tokens/s), stopped at --max-tokens, ");
  says("prompt    4 tokens, 36.0 ms: 0.0 ms cloud + 0.0 ms wire + 31.0 ms here + 5.0 ms waiting\n");
  says("tokens    9 more, each 100 ms: 0 ms cloud + 0 ms wire + 100 ms here\n");
  says("lost      waited 5.10 s for the cloud\n");
  receipt.counts.losses = receipt.counts.survived = receipt.counts.replays = 1;
  says("lost      1 loss survived, waited 5.10 s for the cloud; 1 replay\n");
  receipt.counts.losses = 3;
  receipt.counts.survived = receipt.counts.replays = 2;
  says("lost      3 losses, 2 survived, waited 5.10 s for the cloud; 2 replays\n");
  receipt.counts.losses = 1;
  receipt.counts.survived = receipt.counts.replays = 0;
  receipt.waited_ms = 0;
  says("lost      1 loss, not survived\n");
  // Nobody knows which part of a stream is the cloud's and which the line's; none was here.
  receipt.counts.edge_ms = receipt.first.edge_ms = 0;
  receipt.first.traffic.stream_ms = 36;
  receipt.counts.traffic.stream_ms = 6036;
  says("prompt    4 tokens, 36.0 ms: 36.0 ms cloud and line\n");
  says("tokens    9 more, each 667 ms: 667 ms cloud and line\n");
  receipt.max_tokens = 11;
  receipt.forecast.emplace().cut = Cut::cloud();
  receipt.forecast->why = Why::kOnlyFit;
  says("stopped at the end of the context");
  says("plan      all on the cloud (nothing else is here): ");
}

TEST(Forecasts, ChargesAnAnswerForNewWeightsAlone) {
  const test::TemporaryFolder folder;
  Forecasts forecasts(PlanMemory(ShardCache(folder.path), "http://a", "m", "cpu"), shape(), {});
  forecasts.measured({}, {}, CloudLoad{facts().cloud, Prices{0, 1}, {}});
  Receipt receipt;
  receipt.cut = 2;
  receipt.fetched.downloaded = 1'000'000'000;
  const AnswerWatch watch = watched(10, 24, 3, 12);
  forecasts.describe(receipt, watch, false);
  EXPECT_EQ(receipt.cost->weights, 1);
  forecasts.learn(receipt, watch, false);
  forecasts.describe(receipt, watch, false);
  EXPECT_EQ(receipt.cost->weights, 0);
}

}  // namespace
}  // namespace split::edge
