// The planner by arithmetic: prices of places, the pick among them, and when it changes.
#include <gtest/gtest.h>

#include "edge_client/place/fastest_cut.h"
#include "edge_client/place/plan_report.h"

namespace split::edge {
namespace {

// GPT-2 124M in q8_0 between a fast cloud and a laptop: 30 ms, 50 and 10 Mbit/s.
PlanInput laptop() {
  PlanInput input;
  input.layers = 12;
  input.channels = 768;
  input.network = Network{30, 50, 10};
  input.edge = Speed{.block_ms = 0.175, .head_ms = 0.8, .prompt_row_ms = 0.05};
  input.cloud = Speed{.block_ms = 0.02, .head_ms = 0.06, .prompt_row_ms = 0.0001};
  for (uint64_t cut = 0; cut <= 12; ++cut) {
    const uint64_t embedding = cut == 0 ? 41'000'000 : 0;
    input.download_bytes.push_back(41'000'000 + (12 - cut) * 7'500'000 + embedding);
  }
  input.missing_bytes = input.download_bytes;
  return input;
}

const Place& at(const std::vector<Place>& places, int cut) {
  return places[1 + static_cast<size_t>(cut)];
}

TEST(Planner, PricesEveryPlace) {
  const std::vector<Place> places = price_places(laptop());
  ASSERT_EQ(places.size(), 14u);
  EXPECT_EQ(places[0].cut.name(), "cloud");
  EXPECT_NEAR(*places[0].token_ms, 0.3, 1e-9);
  EXPECT_EQ(at(places, 0).cut.name(), "0");
  EXPECT_NEAR(*at(places, 0).token_ms, 12 * 0.175 + 0.8, 1e-9);
  EXPECT_EQ(*at(places, 0).cloud_ms, 0);
  EXPECT_EQ(at(places, 0).download_bytes, 2 * 41'000'000u + 12 * 7'500'000u);
  EXPECT_EQ(at(places, 12).download_bytes, 41'000'000u);  // the head alone
  EXPECT_EQ(at(places, 0).bytes_per_token, 0u);
  // A round trip, 3,402 bytes at 50 Mbit/s, 320 at 10, half of both sides.
  const double bytes = 3402 * 8 / 50e3 + 320 * 8 / 10e3;
  EXPECT_NEAR(*at(places, 6).token_ms, 30.1 + bytes + 6 * 0.02 + 6 * 0.175 + 0.8, 1e-9);
  for (int cut = 2; cut <= 12; ++cut) {
    EXPECT_GT(*at(places, cut).cloud_ms, *at(places, cut - 1).cloud_ms);
  }
}

TEST(Planner, TakesTheCloudForSpeedAndTheEdgeToOffload) {
  const PlanInput input = laptop();
  const std::vector<Place> places = price_places(input);
  const Pick fast = pick_place(places, input, Goal::kFast, 10);
  EXPECT_EQ(places[fast.place].cut.name(), "cloud");
  EXPECT_EQ(fast.why, Why::kFastest);
  const Pick offload = pick_place(places, input, Goal::kOffload, 10);
  EXPECT_EQ(places[offload.place].cut.name(), "0");
  EXPECT_EQ(offload.why, Why::kGoal);
  // No place is quick enough here: the fastest one.
  const Pick hurried = pick_place(places, input, Goal::kOffload, 10'000);
  EXPECT_EQ(places[hurried.place].cut.name(), "cloud");
}

TEST(Planner, TakesACutWhereTheEdgeIsFasterAndCannotHoldAll) {
  PlanInput input = laptop();
  input.network = Network{0.2, 1000, 1000};
  input.cloud = Speed{.block_ms = 4, .head_ms = 8, .prompt_row_ms = 1};
  input.most_bytes = 41'000'000 + 6 * 7'500'000;
  const std::vector<Place> places = price_places(input);
  EXPECT_FALSE(at(places, 5).fits);
  EXPECT_TRUE(at(places, 6).fits);
  const Pick pick = pick_place(places, input, Goal::kFast, 10);
  EXPECT_EQ(places[pick.place].cut.name(), "6");
}

TEST(Planner, HeedsTheCloudsWishWhileThePaceHolds) {
  PlanInput input = laptop();
  input.want = 6;
  const std::vector<Place> places = price_places(input);
  const Pick asked = pick_place(places, input, Goal::kFast, 10);
  EXPECT_EQ(places[asked.place].cut.name(), "0");  // the fastest one at or below 6
  EXPECT_EQ(asked.why, Why::kAskedByCloud);
  EXPECT_EQ(places[pick_place(places, input, Goal::kFast, 2'000).place].cut.name(), "cloud");
  const Pick own = pick_place(places, input, Goal::kOffload, 10);
  EXPECT_EQ(own.why, Why::kGoal);  // is there already
}

TEST(Planner, StaysWithTheCloudWhereNothingWasMeasured) {
  PlanInput input = laptop();
  input.edge.reset();
  input.network.reset();
  const std::vector<Place> places = price_places(input);
  EXPECT_FALSE(at(places, 6).token_ms);
  EXPECT_FALSE(at(places, 0).token_ms);
  EXPECT_EQ(pick_place(places, input, Goal::kFast, 10).place, 0u);
  input.cloud.reset();
  EXPECT_EQ(pick_place(price_places(input), input, Goal::kFast, 10).place, 0u);
  EXPECT_EQ(plan_words(price_places(input), input),
            "all on the cloud: not measured; all here: not measured after 172 MB");
}

TEST(Planner, StaysBelowTheHighestCut) {
  PlanInput input = laptop();
  input.highest = 9;
  const auto picked = [&](Goal goal) {
    const std::vector<Place> places = price_places(input);
    for (const Place& place : places) EXPECT_EQ(place.fits, place.cut <= 9);
    return places[pick_place(places, input, goal, 10).place].cut.name();
  };
  EXPECT_EQ(picked(Goal::kFast), "0");  // which the cloud alone would beat
  input.edge.reset();
  EXPECT_EQ(picked(Goal::kFast), "9");  // nobody could price one
}

TEST(Planner, SaysItInWords) {
  PlanInput input = laptop();
  const std::string table = to_text({"gpt2", Goal::kFast, 10, {}, input}, "cpu");
  const char* const end =
      "\nAll on the cloud: 0.3 ms a token; the quickest cut, 12: 31.9 ms; all here: 2.9 ms "
      "after 172 MB (28 s).\nGoing to \"all on the cloud\": 64 tokens take 49.3 ms there; "
      "all here 206 ms.\n";
  EXPECT_TRUE(table.ends_with(end)) << table;
  EXPECT_EQ(plan_words(price_places(input), input),
            "all on the cloud: 0.3 ms a token; the quickest cut, 12: 31.9 ms; all here: 2.9 ms "
            "after 172 MB (28 s)");
  input.missing_bytes.assign(13, 0);
  input.most_bytes = 1000;
  EXPECT_EQ(plan_words(price_places(input), input),
            "all on the cloud: 0.3 ms a token; all here would not fit");
}

// The words say nothing that the table does not show.
TEST(Planner, SaysWhyByTheFiguresOfThePlaces) {
  PlanInput input = laptop();
  input.network.reset();  // so that the cloud has no first word, and no cut is priced
  EXPECT_TRUE(to_text({"m", Goal::kFast, 10, {}, input}, "cpu")
                  .ends_with("Going to \"all here\": nothing else was measured.\n"));
  input = laptop();
  // A token takes 0.3 ms there, and 64 of them with the first are sooner here.
  input.edge = Speed{.block_ms = 0.03, .head_ms = 0.06, .prompt_row_ms = 0.0001};
  const std::string table = to_text({"m", Goal::kFast, 10, {}, input}, "cpu");
  EXPECT_TRUE(
      table.ends_with("Going to \"all here\": 64 tokens take 27.0 ms there once its "
                      "weights are here; all on the cloud 49.3 ms.\n"))
      << table;
  const std::vector<Place> places = price_places(input);
  EXPECT_GT(*places[1].token_ms, *places[0].token_ms);
  EXPECT_LT(text_ms(places[1]), text_ms(places[0]));
  EXPECT_NEAR(text_ms(places[1]), *places[1].first_token_ms + 64 * *places[1].token_ms, 1e-9);
  EXPECT_EQ(pick_words({7, Why::kGoal}, places, 10), "relieves the cloud, still over 10 tokens/s");
  EXPECT_EQ(pick_words({7, Why::kAskedByCloud}, places, 10), "the cloud asked for it");
}

TEST(Planner, TableHasTheCutThatTheWordsName) {
  PlanInput input = laptop();
  input.layers = 40;
  for (std::vector<uint64_t>* bytes : {&input.download_bytes, &input.missing_bytes}) {
    bytes->clear();
    for (uint64_t cut = 0; cut <= 40; ++cut) bytes->push_back(8'000'000 * (41 - cut));
  }
  for (const int quickest : {40, 1}) {
    const std::vector<Place> places = price_places(input);
    EXPECT_EQ(quickest_cut(places)->cut, quickest);
    const std::string table = to_text({"m", Goal::kFast, 10, {}, input}, "cpu");
    EXPECT_NE(table.find(cat("; the quickest cut, ", quickest, ": ")), table.npos) << table;
    EXPECT_NE(table.find(cat("\n  cut ", quickest, " ")), table.npos) << table;
    std::swap(input.edge, input.cloud);
  }
}

TEST(Planner, DropsWhatNobodyMeasured) {
  PlanInput input = laptop();
  input.edge.reset();
  input.cloud.reset();
  const std::string table = to_text({"m", Goal::kFast, 10, {}, input}, "cpu");
  EXPECT_EQ(table.find("first word"), std::string::npos) << table;
  EXPECT_EQ(table.find(" - "), std::string::npos) << table;
  EXPECT_TRUE(
      table.ends_with("--measure adds how long a text takes at each place, and picks one.\n"))
      << table;
}

// Counted as a receipt does: 5 of 8 blocks, 6, and a head of two that is here.
TEST(Planner, CountsTheCloudsPartOfTheWorkWithTheHead) {
  PlanInput input = laptop();
  input.layers = 8;
  for (const auto& [head, cut, percent] : std::initializer_list<std::tuple<double, int, int>>{
           {0, 5, 63}, {0, 7, 88}, {2, 6, 60}, {2, 8, 80}, {2, 0, 0}}) {
    input.head_blocks = head;
    Place place;
    place.cut = cut;
    EXPECT_EQ(cloud_percent(place, input), percent) << head << " " << cut;
  }
  EXPECT_EQ(cloud_percent(price_places(input)[0], input), 100);
}

TEST(Planner, CountsMoney) {
  PlanInput input = laptop();
  input.prices = Prices{.hour = 3.6, .egress_gb = 0.09};
  const std::vector<Place> places = price_places(input);
  // 0.3 ms of a machine at $3.60 an hour, and 330 bytes: $0.30 and $0.0297 a million.
  EXPECT_NEAR(*places[0].dollars_per_million, 0.3 + 0.0297, 1e-9);
  EXPECT_NEAR(*at(places, 6).dollars_per_million, 0.12 + 0.30618, 1e-9);
  // A cut sends more than it saves; all here saves everything, and its download pays in time.
  EXPECT_FALSE(break_even_tokens(places[0], at(places, 6), *input.prices));
  EXPECT_NEAR(*break_even_tokens(places[0], at(places, 0), *input.prices),
              172e6 * 0.09 / 1e9 / (0.3297 / 1e6), 1);
}

TEST(Planner, LearnsFromReceipts) {
  Correction correction;
  const double measured = *at(price_places(laptop()), 0).token_ms;
  for (int i = 0; i < 20; ++i) correction.edge.learn(measured, 5.8);
  PlanInput taught = laptop();
  taught.correction = correction;
  EXPECT_NEAR(*at(price_places(taught), 0).token_ms, 5.8, 0.05);
  EXPECT_GT(correction.edge.factor, 1.8);  // more than a millisecond
  const Learnt before = correction.edge;
  correction.edge.learn(0, 5);  // nothing to learn from
  EXPECT_EQ(correction.edge.factor, before.factor);
}

TEST(Planner, LearnsWhatComesToEachTokenBesideItsWork) {
  // Half as slow again as measured, and 0.3 ms beside: seen at two cuts in turn.
  Learnt learnt;
  for (int i = 0; i < 2000; ++i) {
    const double work = i % 2 == 0 ? 0.1 : 2;
    learnt.learn(work, 1.5 * work + 0.3);
  }
  EXPECT_NEAR(learnt.factor, 1.5, 0.05);
  EXPECT_NEAR(learnt.extra_ms, 0.3, 0.05);
  EXPECT_NEAR(learnt.of(1), 1.8, 0.05);
  EXPECT_EQ(learnt.of(0), 0);
}

TEST(Planner, ChangesOnlyForTenPercentAndAfterThreeSeconds) {
  PlanInput input = laptop();
  SteadyPick steady;
  Clock::time_point now{};
  const auto pick_at = [&](double cloud_block_ms) {
    input.cloud->block_ms = cloud_block_ms;
    const std::vector<Place> places = price_places(input);
    return places[steady.update(places, pick_place(places, input, Goal::kFast, 10), now)]
        .cut.name();
  };
  EXPECT_EQ(pick_at(0.02), "cloud");
  EXPECT_EQ(pick_at(10), "cloud");  // too early
  now += std::chrono::seconds(4);
  EXPECT_EQ(pick_at(10), "0");
  now += std::chrono::seconds(4);
  EXPECT_EQ(pick_at(0.23), "0");  // 2.82 ms against 2.9: not 10 %
  EXPECT_EQ(pick_at(0.02), "cloud");
}

constexpr Cut kCloud = Cut::cloud();

std::optional<Cut> begin_of(const std::optional<FastestCut::Now>& now) {
  return now ? std::optional(now->begin) : std::nullopt;
}

TEST(FastestCut, BeginsTextsWhereTheyAreQuickestOfTheCloudAndWhatIsHere) {
  PlanInput input = laptop();
  FastestCut choice;
  Moment now{};
  const auto at = [&](int lowest) { return choice.at(input, lowest, now); };
  const auto first = at(0);
  EXPECT_EQ(begin_of(first), kCloud);
  EXPECT_EQ(first->here->cut, 0);
  EXPECT_NEAR(first->here->token_ms, 2.9, 1e-9);
  EXPECT_NEAR(*first->cloud_ms, 0.3, 1e-9);
  EXPECT_EQ(words_of(*first),
            "all here would take 2.9 ms a token, the cloud 0.3 (foreseen): staying on the cloud");
  input.cloud->block_ms = 10;
  EXPECT_EQ(begin_of(at(0)), kCloud);  // too early for another place
  now += std::chrono::seconds(4);
  EXPECT_EQ(begin_of(at(0)), 0);
  EXPECT_EQ(words_of(*at(0)),
            "all here would take 2.9 ms a token, the cloud 120 (foreseen): texts begin here");
  now += std::chrono::seconds(4);
  input.cloud->block_ms = 0.22;
  EXPECT_EQ(begin_of(at(0)), 0);  // 2.7 ms there is not a tenth less
  input.cloud->block_ms = 0.02;
  EXPECT_EQ(begin_of(at(0)), kCloud);
  // Nobody has measured this machine, or the cloud: then texts begin where the weights are.
  input.edge.reset();
  EXPECT_EQ(begin_of(at(0)), std::nullopt);
  input = laptop();
  input.cloud.reset();
  EXPECT_EQ(begin_of(at(6)), kCloud);
  EXPECT_EQ(begin_of(at(0)), 0);
  EXPECT_NEAR(at(0)->here->token_ms, 2.9, 1e-9);  // for a text that times itself
  EXPECT_EQ(words_of(*at(0)), "");
}

TEST(FastestCut, TakesACutOfThoseWhoseWeightsAreHere) {
  PlanInput input = laptop();
  input.network = Network{0.5, 0, 0};
  input.cloud->block_ms = 2;
  FastestCut choice;
  const auto half = choice.at(input, 6, {});
  EXPECT_EQ(begin_of(half), 6);
  EXPECT_NEAR(half->here->token_ms, 0.6 + 6 * 2 + 6 * 0.175 + 0.8, 1e-9);
  EXPECT_EQ(words_of(*half),
            "cut 6 would take 14 ms a token, the cloud 24 (foreseen): texts begin at cut 6");
  // Nothing else is to be done with half of them beside a cloud that is quickest.
  input.cloud->block_ms = 0.02;
  EXPECT_FALSE(FastestCut().at(input, 6, {})->here);
  input.cloud->block_ms = 2;
  // All of it, as soon as that is here.
  EXPECT_EQ(begin_of(choice.at(input, 0, {})), 0);
}

TEST(FastestCut, LeavesALostCloudAloneForAWhile) {
  using std::chrono::seconds;
  const PlanInput input = laptop();
  FastestCut choice;
  const auto at = [&](int second, int lowest = 0) {
    return begin_of(choice.at(input, lowest, Moment(seconds(second))));
  };
  const auto lost = [&](int second) { choice.ended(true, false, Moment(seconds(second))); };
  EXPECT_EQ(at(0), kCloud);
  lost(1);
  EXPECT_EQ(at(1), 0);
  EXPECT_EQ(at(1, 6), kCloud);  // it is needed
  EXPECT_EQ(at(10), 0);
  EXPECT_EQ(at(11), kCloud);
  lost(12);  // again, and so for longer
  EXPECT_EQ(at(31), 0);
  EXPECT_EQ(at(32), kCloud);
  choice.ended(false, true, Moment(seconds(33)));
  lost(40);
  EXPECT_EQ(at(49), 0);
  EXPECT_EQ(at(50), kCloud);
}

}  // namespace
}  // namespace split::edge
