// A text whose cut moves by any schedule, and beside any fault, is the whole model's.
#include <gtest/gtest.h>

#include "split/split_moves.h"
#include "wire/codes.h"

namespace split::test {
namespace {

class SplitSchedules : public SplitMoves {
 protected:
  using SplitMoves::SplitMoves;

  // So many texts whose prompts and moves are random, half of them greedy, half of them with
  // guesses. Returns how many guesses were right.
  size_t any(int count) {
    std::minstd_rand random(5);
    const auto context = static_cast<unsigned>(golden.model->config().context);
    const auto vocab = static_cast<unsigned>(golden.model->config().vocab);
    size_t moved = 0, accepted = 0;
    for (int n = 0; n < count; ++n) {
      GenerateOptions options = wanted();
      options.max_tokens = static_cast<int>(std::min(24u, context / 2));
      options.sampling.seed = static_cast<uint64_t>(n);
      if (n % 2 == 0) options.sampling.temperature = 0;
      prompt.resize(1 + random() % std::min(300u, context / 2));
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
      Schedule schedule = Schedule::random(random, layers(), options.max_tokens);
      schedule.asked = n % 3 == 2;
      if (n % 4 >= 2) options.drafts = {.most = kMostDrafts, .always = true};
      const Result got = run(schedule, options, static_cast<unsigned>(n));
      EXPECT_EQ(got.counts.replays, 0u);
      moved += got.moves.size();
      accepted += got.accepted;
      for (const edge::Move& move : got.moves) {
        const bool due =
            std::ranges::find(schedule.moves, move.at, &std::pair<uint32_t, edge::Cut>::first) !=
            schedule.moves.end();
        EXPECT_TRUE(schedule.asked || due) << move.at;  // drafts end there
      }
      if (HasFailure()) {
        ADD_FAILURE() << n;
        break;
      }
    }
    EXPECT_TRUE(moved > 0 || count == 1);
    if (golden.model->state(0).keeps()) {
      EXPECT_GE(states_compared, count);
    }
    return accepted;
  }

  // So many texts, each twice: the second one takes rows of the first one's prompt where its cut
  // was then, and moves. Faults come between. `least` rows are taken in all.
  void share_rows(int count, uint64_t least) {
    shares = true;
    std::minstd_rand random(5);
    uint64_t taken = 0;
    size_t moved = 0;
    for (int n = 0; n < count; ++n) {
      SCOPED_TRACE(n);
      GenerateOptions options = wanted();
      options.sampling.seed = static_cast<uint64_t>(n);
      cloud.leaves_snapshots = n % 3 != 0;
      if (n % 2 == 0) options.drafts = {.most = kMostDrafts, .always = true};
      prompt.resize(17 + random() % 30);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 256);
      const Schedule schedule = Schedule::random(random, layers(), options.max_tokens);
      cloud.before_call = [&](int) {
        if (random() % 20 == 0) cloud.forget_all();
        if (random() % 20 == 0) tail_pages->forget();
        if (random() % 8 == 0) evict_snapshots(*tail_pages, layers(), random() % 3);
      };
      const Result got = run(schedule, options, static_cast<unsigned>(n));
      cloud.before_call = {};
      taken += got.taken_rows;
      moved += got.moves.size();
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GE(taken, least);
    EXPECT_GT(moved, static_cast<size_t>(count));
  }

  // Faults of any kind before and behind the calls of so many schedules, and guesses. Snapshots of
  // states come and go.
  void faults(int count) {
    std::minstd_rand random(7);
    const auto vocab = static_cast<unsigned>(golden.model->config().vocab);
    size_t moved = 0, faults = 0;
    ends_lost = true;
    for (int n = 0; n < count; ++n) {
      SCOPED_TRACE(n);
      cloud.leaves_snapshots = n % 3 != 0;
      shares = has_states() && n % 4 < 2;
      GenerateOptions options = wanted();
      options.max_tokens = 24;
      options.sampling.seed = static_cast<uint64_t>(n);
      if (n % 2 == 0) options.drafts = {.most = kMostDrafts, .always = true};
      prompt.resize(1 + random() % 60);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
      const auto maybe = [&](int) {
        if (random() % 16 != 0) return;
        ++faults;
        switch (random() % (has_states() ? 6 : 4)) {
          case 4:
            return evict_snapshots(*tail_pages, layers(), random() % 3);
          case 5:
            return evict_snapshots(cloud.batcher().shard().pages(), layers(), random() % 3);
          case 0:
            return cloud.forget_all();
          case 1:
            return cloud.batcher().shard().pages().forget();
          case 2:
            return tail_pages->forget();
          default:
            throw RemoteError("no answer", 0, "");
        }
      };
      cloud.before_call = cloud.after_call = maybe;
      const Schedule schedule = Schedule::random(random, layers(), options.max_tokens);
      moved += run(schedule, options, static_cast<unsigned>(n)).moves.size();
      cloud.before_call = cloud.after_call = {};
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(moved, 0u);
    EXPECT_GT(faults, static_cast<size_t>(count) * 2 / 5);
  }
  bool has_states() { return cloud.batcher().pages().states() > 0; }
};

class SplitMovesOf : public SplitSchedules, public testing::WithParamInterface<const char*> {
 protected:
  SplitMovesOf() : SplitSchedules(GetParam()) {}
};

TEST_P(SplitMovesOf, AnyScheduleGivesTheWholeModelsLogits) {
  const std::string model = GetParam();
  const size_t accepted = any(schedules() / (model == "demo" ? 20 : 3));
  // Texts of the others do not repeat.
  EXPECT_TRUE(accepted > 0 || model.starts_with("models/"));
}

TEST_P(SplitMovesOf, FaultsBesideAnyScheduleLoseAndDoubleNoToken) {
  if (!std::string_view(GetParam()).starts_with("models/") && schedules() < 1000) {
    GTEST_SKIP() << "other tests have each fault: SPLIT_LONG=1 runs it";
  }
  faults(schedules() / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitMovesOf,
                         testing::Values("rand-a", "rand-b", "rand-c", "demo", "models/qwen35",
                                         "models/qwen35-text", "models/gemma4",
                                         "models/gemma4-dense"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '/' || c == '-'; }, '_');
                           return name;
                         });

// Both sides on it.
class SplitMovesOnVulkan : public SplitSchedules, public testing::WithParamInterface<const char*> {
 protected:
  SplitMovesOnVulkan() : SplitSchedules(GetParam(), vulkan_or_cpu) {}
  void SetUp() override {
    if (!why_not_vulkan.empty()) GTEST_SKIP() << why_not_vulkan;
  }
};

TEST_P(SplitMovesOnVulkan, AnyScheduleGivesTheWholeModelsLogits) {
  const std::string model = GetParam();
  if (model != "rand-a" && !model.starts_with("models/") && schedules() < 1000) {
    GTEST_SKIP() << "takes minutes with the others: SPLIT_LONG=1 runs it";
  }
  any(model == "demo" ? 1 : schedules() / 30 + 1);
}

TEST_P(SplitMovesOnVulkan, FaultsBesideAnyScheduleLoseAndDoubleNoToken) {
  if (!std::string_view(GetParam()).starts_with("models/") && schedules() < 1000) {
    GTEST_SKIP() << "other tests have each fault: SPLIT_LONG=1 runs it";
  }
  faults(schedules() / 10);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitMovesOnVulkan,
                         testing::Values("rand-a", "rand-b", "rand-c", "demo", "models/qwen35",
                                         "models/qwen35-text", "models/gemma4",
                                         "models/gemma4-dense"));

class SplitMovesAcross : public SplitSchedules, public testing::WithParamInterface<bool> {
 protected:
  SplitMovesAcross() : SplitSchedules("rand-a", Sides{GetParam()}, Profile::kInt8) {}
  void SetUp() override {
    if (!why_not_vulkan.empty()) GTEST_SKIP() << why_not_vulkan;
  }
};

TEST_P(SplitMovesAcross, AnyScheduleGivesTheWholeModelsLogits) {
  any(schedules() == 1000 ? 500 : 30);
}

INSTANTIATE_TEST_SUITE_P(VulkanIsTheEdge, SplitMovesAcross, testing::Bool());

TEST_F(SplitSchedules, TextsThatShareRowsMoveAsThoseThatComputeThem) {
  share_rows(schedules(), static_cast<uint64_t>(schedules()) * 4);
}

class SplitSharesOf : public SplitSchedules, public testing::WithParamInterface<const char*> {
 protected:
  SplitSharesOf() : SplitSchedules(GetParam()) {}
};

// Where a snapshot is left and lives depends on when its requests arrive: one at least is taken.
TEST_P(SplitSharesOf, StatesToo) { share_rows(schedules() / 2, 16); }

INSTANTIATE_TEST_SUITE_P(Models, SplitSharesOf,
                         testing::Values("models/qwen35", "models/qwen35-text"));

// Something goes wrong once, before or behind any of the calls of a text that moves.
TEST_F(SplitMoves, AFaultAnywhereLosesAndDoublesNoToken) {
  struct Fault {
    const char* what;
    bool before;
    std::function<void()> happen;
  };
  const std::vector<Fault> faults = {
      {"busy", true, [] { throw RemoteError("busy", 503, wire::codes::kBusy); }},
      {"the line breaks", true, [] { throw RemoteError("no answer", 0, ""); }},
      {"the answer is lost", false, [] { throw RemoteError("no answer", 0, ""); }},
      {"the server starts again", true, [&] { cloud.forget_all(); }},
      {"and behind the answer", false, [&] { cloud.forget_all(); }},
      {"its device is lost", true, [&] { cloud.batcher().shard().pages().forget(); }},
      {"our device is lost", true, [&] { tail_pages->forget(); }},
      {"and behind the answer", false, [&] { tail_pages->forget(); }},
  };
  for (int32_t id = 0; id < 34; ++id) prompt.push_back(id);
  const std::vector<Schedule> all = {
      {2, {{3, 1}, {6, 3}, {9, 0}}},
      {0, {{2, 2}, {6, 1}}},
      {3, {{1, 0}, {5, 3}}},
      {edge::Cut::cloud(), {{2, 1}, {6, edge::Cut::cloud()}, {9, 0}}}};
  size_t runs = 0;
  for (const Schedule& schedule : all) {
    const int first = cloud.calls();
    run(schedule, wanted());
    const int calls = cloud.calls() - first;
    for (const Fault& fault : faults) {
      for (int at = 1; at <= calls; ++at) {
        SCOPED_TRACE(cat(fault.what, " at call ", at));
        ++runs;
        const int begun = cloud.calls();
        const auto maybe = [&, at](bool before) {
          return [&, at, before](int number) {
            if (before == fault.before && number - begun == at) fault.happen();
          };
        };
        cloud.before_call = maybe(true);
        cloud.after_call = maybe(false);
        const Result got = run(schedule, wanted(), static_cast<unsigned>(at));
        // A text that runs in one place waits for nothing and may end before a mover tries again.
        const bool alone =
            schedule.start == 0 || schedule.start.is_cloud() || schedule.moves[0].second == 0;
        EXPECT_LE(got.moves.size(), schedule.moves.size());
        EXPECT_GE(got.moves.size(), alone ? 0 : schedule.moves.size());
        ASSERT_FALSE(HasFailure());
      }
    }
    cloud.before_call = cloud.after_call = {};
  }
  EXPECT_GT(runs, 200u);
}

}  // namespace
}  // namespace split::test
