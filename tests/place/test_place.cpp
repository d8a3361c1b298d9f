// Where a running text goes on, as a table: a row for each rule, its numbers, its reason.
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <string>
#include <tuple>

#include "base/error.h"
#include "edge_client/place/begin.h"
#include "edge_client/place/bounds.h"
#include "edge_client/place/decision.h"
#include "edge_client/place/forecast.h"

namespace split::edge {
namespace {

constexpr int kLayers = 8;
constexpr Cut kCloud = Cut::cloud();

// A text of 60 rows on the cloud that may have 400 more tokens, each of 50 ms.
PlaceInput text(const std::function<void(PlaceInput&)>& with) {
  PlaceInput in{.layers = kLayers, .cut = kCloud, .rows = 60, .tokens_left = 400};
  in.token_ms = 50;
  with(in);
  return in;
}

struct Row {
  std::string rule;
  std::function<void(PlaceInput&)> with;
  std::optional<Decision> expected = {};
};

TEST(Why, IsToldByTheFiguresThatDecided) {
  EXPECT_EQ(move_words(Why::kFastest, 0.1, 0.06), "quicker there: 0.06 for 0.10 ms a token");
  EXPECT_EQ(move_words(Why::kFastest, 130, 31.2), "quicker there: 31 for 130 ms a token");
  // A text that has become quicker since, or of which nobody knows.
  EXPECT_EQ(move_words(Why::kFastest, 0.05, 0.06), "quicker there");
  EXPECT_EQ(move_words(Why::kFastest, 5, 0), "quicker there");
  EXPECT_EQ(move_words(Why::kGoal, 120, 0), "too slow where it was: 120 ms a token");
  EXPECT_EQ(move_words(Why::kCloudLost, 3, 1), "the cloud was lost");
}

class Decisions : public testing::TestWithParam<Row> {};

TEST_P(Decisions, FollowTheirRule) {
  const std::optional<Decision> got = next_place(text(GetParam().with));
  ASSERT_EQ(got.has_value(), GetParam().expected.has_value());
  if (!got) return;
  EXPECT_EQ(got->cut, GetParam().expected->cut);
  EXPECT_EQ(name_of(got->why), name_of(GetParam().expected->why));
}

const auto kHere = [](PlaceInput& in, int lowest) {
  in.lowest = lowest;
  in.offloads = true;
};
const auto kQuicker = [](PlaceInput& in, int slow_runs, double token_ms, double row_ms) {
  in.lowest = 0;
  in.quicker = FasterCut{0, token_ms, row_ms};
  in.slow_runs = slow_runs;
};

// 4 is here, and 5 is prepared, which took the cloud 500 layer-rows.
const auto kPrepared = [](PlaceInput& in, uint32_t tokens_left) {
  kHere(in, 4);
  in.going = Decision{5, Why::kLanded};
  in.prepared_rows = 60;
  in.prepared_layer_rows = 500;
  in.tokens_left = tokens_left;
};

const auto kBack = [](PlaceInput& in, double token_ms) {
  in.cut = 0;
  in.fled_from = kCloud;
  in.fled_token_ms = token_ms;
  in.cloud_is_back = true;
};

const Row kRows[] = {
    {"nothing known", [](PlaceInput&) {}},

    // A move has to pay for itself: (8 - b) x 400 tokens against b x 60 rows.
    {"all here costs the cloud nothing", [](PlaceInput& in) { kHere(in, 0); },
     Decision{0, Why::kLanded}},
    {"all here for one token", [](PlaceInput& in) { kHere(in, 0), in.tokens_left = 1; },
     Decision{0, Why::kLanded}},
    {"no token left", [](PlaceInput& in) { kHere(in, 0), in.tokens_left = 0; }},
    {"4 x 400 saved for 4 x 60", [](PlaceInput& in) { kHere(in, 4); }, Decision{4, Why::kLanded}},
    {"1 x 400 saved for 7 x 60", [](PlaceInput& in) { kHere(in, 7); }},
    {"4 x 61 saved for 4 x 60", [](PlaceInput& in) { kHere(in, 4), in.tokens_left = 61; },
     Decision{4, Why::kLanded}},
    {"4 x 60 saved for 4 x 60", [](PlaceInput& in) { kHere(in, 4), in.tokens_left = 60; }},
    {"only the head here", [](PlaceInput& in) { kHere(in, 8); }},
    {"2 x 400 more saved for 4 x 60", [](PlaceInput& in) { kHere(in, 4), in.cut = 6; },
     Decision{4, Why::kLanded}},
    {"all weights before 4 x 60 pay back",
     [](PlaceInput& in) { kHere(in, 4), in.whole_ms = 50 * 60; }},
    {"all weights after 4 x 60 paid back",
     [](PlaceInput& in) { kHere(in, 4), in.whole_ms = 50 * 61; }, Decision{4, Why::kLanded}},
    {"all weights some time, at no known pace",
     [](PlaceInput& in) { kHere(in, 4), in.whole_ms = 1e6, in.token_ms.reset(); }},
    {"what is prepared for 5 thrown away: 100 x 5 + 4 x 60 against 4 x 185",
     [](PlaceInput& in) { kPrepared(in, 185); }, Decision{5, Why::kLanded}},
    {"the same with 2,000 tokens left", [](PlaceInput& in) { kPrepared(in, 2000); },
     Decision{4, Why::kLanded}},
    {"half prepared: 4 x 40 saved for 4 x 30",
     [](PlaceInput& in) {
       kHere(in, 4);
       in.going = Decision{4, Why::kLanded};
       in.prepared_rows = 30;
       in.tokens_left = 40;
     },
     Decision{4, Why::kLanded}},
    {"not used to spare the cloud", [](PlaceInput& in) { in.lowest = 0; }},

    // The pace.
    {"too slow where it came",
     [](PlaceInput& in) { in.cut = 4, in.came_from = kCloud, in.pace = 25; },
     Decision{kCloud, Why::kGoal}},
    {"quick enough there", [](PlaceInput& in) { in.cut = 4, in.came_from = kCloud, in.pace = 20; }},
    {"not to where it was too slow", [](PlaceInput& in) { kHere(in, 4), in.lowest_quick = 5; }},
    {"all here all the same", [](PlaceInput& in) { kHere(in, 0), in.lowest_quick = 5; },
     Decision{0, Why::kLanded}},
    {"on its way back",
     [](PlaceInput& in) {
       kHere(in, 0), in.cut = 4, in.going = Decision{kCloud, Why::kGoal};
     },
     Decision{kCloud, Why::kGoal}},

    // Somebody's word.
    {"named", [](PlaceInput& in) { kHere(in, 0), in.named = true, in.want = 2; }},
    {"named, on its way",
     [](PlaceInput& in) {
       kHere(in, 0), in.named = true, in.going = Decision{3, Why::kAsked};
     },
     Decision{3, Why::kAsked}},

    // The cloud's wish.
    {"a loaded cloud", [](PlaceInput& in) { in.lowest = 0, in.want = 2; },
     Decision{2, Why::kAskedByCloud}},
    {"as far as the weights allow", [](PlaceInput& in) { in.lowest = 5, in.want = 2; },
     Decision{5, Why::kAskedByCloud}},
    {"as far as it is quick",
     [](PlaceInput& in) { in.lowest = 0, in.lowest_quick = 3, in.want = 2; },
     Decision{3, Why::kAskedByCloud}},
    {"a wish and no weights", [](PlaceInput& in) { in.want = 2; }},
    {"where it is already", [](PlaceInput& in) { in.cut = 2, in.lowest = 0, in.want = 4; }},
    {"an idle cloud, and back",
     [](PlaceInput& in) { in.cut = 2, in.lowest = 0, in.before_wish = kCloud; },
     Decision{kCloud, Why::kAskedByCloud}},
    {"a wish that ended on the way",
     [](PlaceInput& in) {
       in.lowest = 0, in.before_wish = kCloud, in.going = Decision{2, Why::kAskedByCloud};
     }},

    // Speed: 40 ms a token against 50, rows of 1 ms.
    {"two slow runs", [](PlaceInput& in) { kQuicker(in, 2, 40, 1); }, Decision{0, Why::kFastest}},
    {"one slow run", [](PlaceInput& in) { kQuicker(in, 1, 40, 1); }},
    {"too few tokens left: 10 ms of one against 8 rows of a lag",
     [](PlaceInput& in) { kQuicker(in, 2, 40, 1), in.tokens_left = 2; }},
    {"prepared when the text is over: 60 rows of 400 ms, 400 tokens of 50",
     [](PlaceInput& in) { kQuicker(in, 2, 40, 400); }},
    {"nearer than the cloud wishes",
     [](PlaceInput& in) {
       kQuicker(in, 2, 40, 1);
       in.quicker->cut = 6, in.cut = 4, in.want = 4;
     }},

    // A cloud that was lost and answers again.
    {"quicker there", [](PlaceInput& in) { kBack(in, 45); }, Decision{kCloud, Why::kFastest}},
    {"quicker there, and lost still",
     [](PlaceInput& in) { kBack(in, 45), in.cloud_is_back = false; }},
    {"not quicker there", [](PlaceInput& in) { kBack(in, 46); }},
};

INSTANTIATE_TEST_SUITE_P(Place, Decisions, testing::ValuesIn(kRows), [](const auto& row) {
  std::string name;
  for (const char c : row.param.rule) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

struct Begins {
  std::string rule;
  BeginInput in;
  InitialPlacement expected;
};

// A text of eight blocks whose cut is 6 where nobody names it.
const Begins kBegins[] = {
    {"named", {.cut = 6}, {.cut = 6}},
    {"the cloud, named", {.cut = Cut::cloud(), .fixed = 6}, {.cut = kCloud}},
    {"named, the head on the cloud",
     {.cut = 6, .head_given = true, .head_cloud = true},
     {.cut = 6, .head_on_cloud = true}},
    {"a large head where nobody says",
     {.cut = 6, .head_blocks = 3.1},
     {.cut = 6, .head_on_cloud = true, .head_is_large = true}},
    {"a head of three blocks", {.cut = 6, .head_blocks = 3}, {.cut = 6}},
    {"a large head that is named here",
     {.cut = 6, .head_given = true, .head_blocks = 5},
     {.cut = 6}},
    {"a large head and no block on the cloud", {.cut = 0, .head_blocks = 5}, {.cut = 0}},
    {"a large head of texts whose moves are named",
     {.cut = 6, .scheduled = true, .head_blocks = 5},
     {.cut = 6}},
    {"a large head that nobody needs", {.cut = 6, .embeds = true, .head_blocks = 5}, {.cut = 6}},
    {"a cut of a text that follows, the head large",
     {.cut = 6, .follows = true, .head_blocks = 5},
     {.cut = 6}},
    {"auto: nothing is here yet",
     {.cut = Cut::cloud(), .fixed = 6, .follows = true, .head_blocks = 5},
     {.cut = kCloud, .why = Why::kOnlyFit}},
    {"auto, the cloud lost and all here",
     {.cut = Cut::cloud(), .fixed = 6, .follows = true, .head_blocks = 5, .cloud_lost = true},
     {.cut = 0, .why = Why::kCloudLost}},
    {"the cloud named, and lost",
     {.cut = Cut::cloud(), .fixed = 6, .cloud_lost = true},
     {.cut = kCloud}},
    {"auto, a cut for good",
     {.cut = Cut::cloud(), .fixed = 6, .follows = true, .sessions = {.move = false}},
     {.cut = 6, .why = Why::kOnlyFit, .bound = Constraint::kOneCut}},
    {"auto, no rows kept, the head large",
     {.cut = Cut::cloud(),
      .fixed = 6,
      .follows = true,
      .head_blocks = 5,
      .sessions = {.stream = false}},
     {.cut = 6,
      .why = Why::kOnlyFit,
      .head_on_cloud = true,
      .head_is_large = true,
      .bound = Constraint::kRowsLost}},
    {"nobody names the cut", {.fixed = 6}, {.cut = 6}},
    {"below a tail, the head large",
     {.fixed = 6, .bounds = bounds_of({.tail = 4}), .head_blocks = 5},
     {.cut = 4}},
    {"below a tail, all here",
     {.fixed = 6, .bounds = bounds_of({.tail = 4}), .cloud_lost = true},
     {.cut = 0}},
    {"named below a tail",
     {.cut = 2, .fixed = 6, .bounds = bounds_of({.tail = 4}), .cloud_lost = true},
     {.cut = 2}},
    {"the cloud named, a cut for good",
     {.cut = Cut::cloud(), .fixed = 6, .sessions = {false}},
     {.cut = kCloud}},
};

TEST(Place, BoundsAreOfTheLowestRule) {
  EXPECT_EQ(bounds_of({}).highest, Cut::cloud());
  bounds_of({}).expect("--cut", Cut::cloud());
  const CutBounds below_tail = bounds_of({.tail = 4});
  EXPECT_EQ(below_tail.highest, 4);
  below_tail.expect("--cut", 4);
  try {
    below_tail.expect("--cut", Cut::cloud());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--cut: expected at most 4, where the tail begins, got cloud");
  }
}

TEST(Place, ABoundKeepsTheHeadHereAndChoosesACutThatNobodyNames) {
  EXPECT_TRUE(bounds_of({.tail = 4}).head_here);
  EXPECT_FALSE(bounds_of({}).head_here);
  EXPECT_TRUE(chooses_below(true, false, false));
  EXPECT_FALSE(chooses_below(false, false, false)) << "no bound";
  EXPECT_FALSE(chooses_below(true, true, false)) << "a named cut";
  EXPECT_FALSE(chooses_below(true, false, true)) << "a schedule of cuts";
}

TEST(Place, TextsBegin) {
  for (const auto& [rule, in, expected] : kBegins) {
    const InitialPlacement got = initial_placement(in);
    EXPECT_EQ(got.cut, expected.cut) << rule;
    EXPECT_EQ(name_of(got.why), name_of(expected.why)) << rule;
    EXPECT_EQ(got.head_on_cloud, expected.head_on_cloud) << rule;
    EXPECT_EQ(got.head_is_large, expected.head_is_large) << rule;
    EXPECT_EQ(got.bound, expected.bound) << rule;
  }
  EXPECT_EQ(bound_of({.stream = false}, false), Constraint::kNone);  // a text that no stream begins
}

TEST(Place, TheCloudBeginsATextByItsWordsWhereItMayLeaveIt) {
  EXPECT_TRUE(begins_early(true, false));
  EXPECT_FALSE(begins_early(false, false)) << "a cut that was named";
  EXPECT_FALSE(begins_early(true, true)) << "the model is here, or as last seen";
  EXPECT_FALSE(begins_early(true, false, false)) << "ids, or an embedding";
}

TEST(Place, TheNormIsHereWhereSomebodyReadsHiddenStates) {
  EXPECT_FALSE(ends_with_norm(false, false, true)) << "behind it is the head";
  EXPECT_FALSE(ends_with_norm(false, true, false)) << "the cloud has it before its head";
  EXPECT_TRUE(ends_with_norm(false, true, true)) << "some texts may be embeddings";
  EXPECT_TRUE(ends_with_norm(true, false, false));
}

TEST(Place, OneTextBeginsElsewhereForItsOwnSake) {
  EXPECT_EQ(scored_cut(kCloud, kLayers), kLayers);
  EXPECT_EQ(scored_cut(3, kLayers), 3);
  EXPECT_TRUE(begins_apart(true, false, true));
  EXPECT_FALSE(begins_apart(true, false, false)) << "nobody expects it again";
  EXPECT_FALSE(begins_apart(true, true, true)) << "the cloud's bits";
  EXPECT_FALSE(begins_apart(true, {}, true)) << "not compared";
  EXPECT_FALSE(begins_apart(false, false, true)) << "no weights came";
}

TEST(Place, ChosenTextsBeginOnTheCloudOrBesideABound) {
  EXPECT_EQ(auto_cut(bounds_of({}), false), kCloud);
  EXPECT_EQ(auto_cut(bounds_of({}), true), kCloud);
  EXPECT_EQ(auto_cut(bounds_of({.tail = 4}), false), 4);
  EXPECT_EQ(auto_cut(bounds_of({.tail = 4}), true), 0);
}

TEST(Place, AModelRunsAloneWhereNothingElseIsNamed) {
  EXPECT_TRUE(may_begin_alone(0, false, false));
  EXPECT_TRUE(may_begin_alone(kCloud, true, false)) << "the cut is chosen";
  EXPECT_FALSE(may_begin_alone(3, false, false)) << "the cloud has three blocks";
  EXPECT_FALSE(may_begin_alone({}, false, false)) << "and some by default";
  EXPECT_FALSE(may_begin_alone(0, false, true)) << "and here the head";
}

TEST(Place, TextsArePlacedAnewWhereAUserSaysOrWhereTheyWere) {
  EXPECT_EQ(changed_cut({}, false, false, 5), 5);
  EXPECT_EQ(changed_cut(3, false, false, 5), 3);
  EXPECT_EQ(changed_cut({}, false, false, {}), std::nullopt) << "another model";
  EXPECT_EQ(changed_cut({}, true, true, 5), kCloud);
  EXPECT_EQ(changed_cut({}, true, false, 5), std::nullopt)
      << "the head is on the cloud, or a tail here";
}

TEST(Place, TextsMoveWhereSomebodyMayAskAndNoHigherThanTheirBounds) {
  EXPECT_TRUE(leaves_lost_cloud(false, false));
  EXPECT_FALSE(leaves_lost_cloud(false, true)) << "told to wait";
  EXPECT_TRUE(leaves_lost_cloud(true, true));
  EXPECT_FALSE(has_moves(false, false, false, false));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(has_moves(i == 0, i == 1, i == 2, i == 3)) << i;
  EXPECT_EQ(deepest_cut(6, false, bounds_of({})), 6);
  EXPECT_EQ(deepest_cut(6, true, bounds_of({})), kCloud) << "a user may name any";
  EXPECT_EQ(deepest_cut(6, false, bounds_of({.tail = 4})), 4);
  EXPECT_EQ(deepest_cut(3, true, bounds_of({.tail = 4})), 4);
}

TEST(Place, ATextWhoseCloudIsLostLeavesItOnceItMust) {
  using std::chrono::milliseconds;
  const LossInput lost{.cut = 3,
                       .leaves = true,
                       .silent = true,
                       .since = milliseconds(1500),
                       .budget = milliseconds(30000)};
  const auto after = [&](const std::function<void(LossInput&)>& with) {
    LossInput in = lost;
    with(in);
    return after_loss(in);
  };
  EXPECT_EQ(after([](LossInput&) {}), AfterLoss::kRescue);
  EXPECT_EQ(after([](LossInput& in) { in.whole = true; }), AfterLoss::kLeave);
  EXPECT_EQ(after([](LossInput& in) { in.since = milliseconds(1499); }), AfterLoss::kRetry);
  EXPECT_EQ(after([](LossInput& in) { in.since = {}, in.whole = true; }), AfterLoss::kLeave);
  EXPECT_EQ(after([](LossInput& in) { in.since = in.budget = milliseconds(9); }),
            AfterLoss::kRescue);
  EXPECT_EQ(after([](LossInput& in) { in.in_vain = true; }), AfterLoss::kRetry);
  EXPECT_EQ(after([](LossInput& in) { in.leaves = false, in.whole = true; }), AfterLoss::kRetry);
  EXPECT_EQ(after([](LossInput& in) { in.cut = 0, in.whole = true; }), AfterLoss::kRetry);
  // A cloud that is busy answers; one with another model is not waited for, and not replaced.
  EXPECT_EQ(after([](LossInput& in) { in.silent = false, in.whole = true; }), AfterLoss::kRetry);
  const auto other = [](LossInput& in) { in.silent = false, in.other_model = true; };
  EXPECT_EQ(after(other), AfterLoss::kRetry);
  EXPECT_EQ(after([&](LossInput& in) { other(in), in.whole = true; }), AfterLoss::kLeave);
}

TEST(Place, TheRestComesForTextsThatMayNeedIt) {
  EXPECT_TRUE(keeps_reserve(true, true, false, true));
  EXPECT_FALSE(keeps_reserve(false, true, false, true)) << "they wait for the cloud";
  EXPECT_FALSE(keeps_reserve(true, false, false, true)) << "nothing runs here";
  EXPECT_FALSE(keeps_reserve(true, true, true, true)) << "all is here";
  EXPECT_FALSE(keeps_reserve(true, true, false, false));
}

// Two blocks of 5 ms on the cloud, which a stream's token takes 11 with the head; here a block
// takes `edge_ms`, the head one, and a trip 20.
struct Ended {
  std::string rule;
  double edge_ms;
  EndedInput text;
  Why expected;
  Goal goal = Goal::kFast;
};
const Ended kEnded[] = {
    {"named", 1, {.cut = 1}, Why::kAsked},
    {"its last move's reason", 1, {.moved = Why::kCloudLost, .chosen = true}, Why::kCloudLost},
    {"chosen, and as picked", 1, {.chosen = true, .cut = 0}, Why::kFastest},
    {"chosen for the goal", 1, {.chosen = true, .cut = 0}, Why::kGoal, Goal::kOffload},
    {"another place was picked, whose weights are not here",
     1,
     {.chosen = true, .cut = Cut::cloud()},
     Why::kOnlyFit},
    {"the next text begins there too",
     1,
     {.cut = Cut::cloud(), .lowest = 0, .begins = Cut::cloud()},
     Why::kFastest},
    {"all here would gain half a ms", 4.75, {.cut = Cut::cloud(), .lowest = 0}, Why::kFastest},
    {"all here would gain four", 3, {.cut = Cut::cloud(), .lowest = 0}, Why::kOnlyFit},
    {"its own tokens were as quick",
     3,
     {.cut = Cut::cloud(), .token_ms = 7.5, .lowest = 0},
     Why::kFastest},
    {"its own tokens were slower",
     3,
     {.cut = Cut::cloud(), .token_ms = 8, .lowest = 0},
     Why::kOnlyFit},
};

TEST(Place, AReceiptSaysWhyATextEndedThere) {
  for (const auto& [rule, edge_ms, text, expected, goal] : kEnded) {
    PlanInput plan;
    plan.layers = 2, plan.channels = 8;
    plan.network = Network{.rtt_ms = 20};
    plan.cloud = Speed{.block_ms = 5, .head_ms = 1};
    plan.edge = Speed{.block_ms = edge_ms, .head_ms = 1};
    plan.download_bytes = plan.missing_bytes = {3, 2, 1};
    EXPECT_EQ(name_of(why_there(text, plan, goal, 10)), name_of(expected)) << rule;
  }
}

// The steps are norm and head, two blocks and the embedding, or the norm and the upper block.
TEST(Place, AsMuchComesAsFits) {
  constexpr uint64_t kAll = 160, kNoLimit = UINT64_MAX;
  struct Came {
    std::string rule;
    uint64_t max_weights, granted;
    double head_blocks;
    size_t steps;
    bool head;
    uint64_t bytes;
    bool by_memory = false;
  };
  for (const Came& row : {
           Came{"all", kNoLimit, kNoLimit, 5, 4, true, kAll},
           {"all and no byte more", kAll, kNoLimit, 5, 4, true, kAll},
           {"a byte less, the head small", kAll - 1, kNoLimit, 3, 3, true, 120},
           {"a byte less, the head large", kAll - 1, kNoLimit, 3.1, 2, false, 21},
           {"the head and a block", 110, kNoLimit, 1, 2, true, 100},
           {"the head alone", 99, kNoLimit, 1, 1, true, 80},
           {"not even that", 79, kNoLimit, 1, 0, true, 0},
           {"the norm alone is nothing", 20, kNoLimit, 5, 0, false, 0},
           {"nothing by wish", 0, 0, 1, 0, true, 0},
           {"the memory is the lower limit", 110, 99, 1, 1, true, 80, true},
           {"the wish is", 99, 110, 1, 1, true, 80},
       }) {
    const FetchPlan got = fetch_plan({.steps = {80, 20, 20, 40},
                                      .headless = {1, 20},
                                      .head_blocks = row.head_blocks,
                                      .max_weights = row.max_weights,
                                      .granted = row.granted});
    EXPECT_EQ(got.steps, row.steps) << row.rule;
    EXPECT_EQ(got.head, row.head) << row.rule;
    EXPECT_EQ(got.bytes, row.bytes) << row.rule;
    EXPECT_EQ(got.whole, row.bytes == kAll) << row.rule;
    EXPECT_EQ(got.all, kAll) << row.rule;
    EXPECT_EQ(got.by_memory, row.by_memory) << row.rule;
    EXPECT_EQ(got.most, std::min(row.max_weights, row.granted)) << row.rule;
  }
}

struct SwitchRow {
  const char* rule;
  Decision going;
  std::function<void(PlaceInput&)> with;
  bool expected;
};

// A text that moved 2.9 s ago, for the cloud's sake 9.9 s ago, with 50 ms a token.
const SwitchRow kSwitches[] = {
    {"asked: at once", {3, Why::kAsked}, [](PlaceInput&) {}, true},
    {"landed: at once", {3, Why::kLanded}, [](PlaceInput&) {}, true},
    {"landed, at 20 tokens/s of 20", {3, Why::kLanded}, [](PlaceInput& in) { in.pace = 20; }, true},
    {"landed, at 20 tokens/s of 21",
     {3, Why::kLanded},
     [](PlaceInput& in) { in.pace = 21; },
     false},
    {"landed, all of it, at any pace",
     {0, Why::kLanded},
     [](PlaceInput& in) { in.pace = 21; },
     true},
    {"faster: too soon", {0, Why::kFastest}, [](PlaceInput&) {}, false},
    {"faster: 3 s behind the last",
     {0, Why::kFastest},
     [](PlaceInput& in) { in.since_move_ms = 3000; },
     true},
    {"faster: the first move",
     {0, Why::kFastest},
     [](PlaceInput& in) { in.since_move_ms.reset(); },
     true},
    {"faster: at a token that was named",
     {0, Why::kFastest},
     [](PlaceInput& in) { in.at_its_token = true; },
     true},
    {"back for the pace: too soon", {kCloud, Why::kGoal}, [](PlaceInput&) {}, false},
    {"wished: 9.9 s behind the last wish",
     {2, Why::kAskedByCloud},
     [](PlaceInput& in) { in.since_move_ms = 9900; },
     false},
    {"wished: 10 s behind it, 3 s behind a move",
     {2, Why::kAskedByCloud},
     [](PlaceInput& in) { in.since_wish_ms = 10000, in.since_move_ms = 3000; },
     true},
    {"wished: 10 s behind it, too soon behind a move",
     {2, Why::kAskedByCloud},
     [](PlaceInput& in) { in.since_wish_ms = 10000; },
     false},
};

TEST(Place, AMoveThatIsPreparedIsMadeWhereItsRuleSaysSo) {
  for (const SwitchRow& row : kSwitches) {
    PlaceInput in = text([](PlaceInput&) {});
    in.going = row.going;
    in.since_move_ms = 2900;
    in.since_wish_ms = 9900;
    row.with(in);
    EXPECT_EQ(may_switch(in), row.expected) << row.rule;
  }
}

TEST(Place, ATextThatMayBeExpectedAgainMovesOnlyWithTheCloudsBits) {
  for (const auto& [exact, exact_only, repeats, moves] :
       {std::tuple(std::optional(true), true, true, true),
        {false, false, false, true},
        {false, false, true, false},
        {false, true, false, false},
        {std::nullopt, false, false, true},
        {std::nullopt, true, false, false}}) {
    EXPECT_EQ(may_move(exact, exact_only, repeats), moves);
  }
}

}  // namespace
}  // namespace split::edge
