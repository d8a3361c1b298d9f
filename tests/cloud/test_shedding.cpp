// Tests which cuts a loaded cloud asks for, with a clock of the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cloud_server/state/shedding.h"

namespace split::cloud {
namespace {

using Sessions = std::map<Shedding::Id, Shedding::Session>;

TEST(Shedding, PressureIsTheFullestOfThree) {
  Shedding shedding(12, 50);
  shedding.round(0, {.work = 0.4}, {});
  EXPECT_DOUBLE_EQ(shedding.pressure(), 0.5);
  shedding.round(1, {.work = 0.4, .kv = 0.85}, {});
  EXPECT_DOUBLE_EQ(shedding.pressure(), 1.0);
  shedding.round(2, {.work = 0.4, .kv = 0.85, .p99_ms = 100}, {});
  EXPECT_DOUBLE_EQ(shedding.pressure(), 2.0);
  EXPECT_DOUBLE_EQ(shedding.price(), 1.0);
}

TEST(Shedding, LevelRisesAtOnceAndFallsAfterFiveCalmSeconds) {
  Shedding shedding(12, 50);
  for (int i = 0; i < 4; ++i) shedding.round(i * 0.5, {.work = 1}, {});
  EXPECT_NEAR(shedding.level(), 0.4, 1e-9);
  shedding.round(2, {.work = 0.7}, {});  // between the two: it stays
  for (int i = 0; i <= 10; ++i) shedding.round(2.5 + i * 0.5, {.work = 0.1}, {});
  EXPECT_NEAR(shedding.level(), 0.4, 1e-9);
  shedding.round(8.5, {.work = 0.1}, {});
  EXPECT_NEAR(shedding.level(), 0.35, 1e-9);
}

TEST(Shedding, WantsFollowPrioritiesAndNeverPassWhatAnEdgeCan) {
  Shedding shedding(12, 50);
  const Sessions sessions{{1, {Priority::kLow, 0}},
                          {2, {Priority::kNormal, 0}},
                          {3, {Priority::kHigh, 0}},
                          {4, {Priority::kLow, 9}},
                          {5, {Priority::kLow, 12}}};
  for (int i = 0; i < 5; ++i) shedding.round(i * 0.5, {.work = 1}, {});
  for (int i = 0; i < 9; ++i) shedding.round(3 + i * 0.5, {.work = 0.7}, sessions);
  EXPECT_EQ(shedding.want(1), 3);
  EXPECT_EQ(shedding.want(2), 6);
  EXPECT_EQ(shedding.want(3), 9);
  EXPECT_GE(shedding.want(4).value_or(12), 9);
  EXPECT_EQ(shedding.want(5), std::nullopt);
}

TEST(Shedding, ASessionIsLeftAloneForTenSecondsAfterAWish) {
  Shedding shedding(12, 50);
  std::vector<std::pair<double, int>> cut_requests;
  for (int i = 0; i < 60; ++i) {
    shedding.round(i * 0.5, {.work = 1}, {{1, {}}});
    const int want = shedding.want(1).value_or(12);
    if (cut_requests.empty() || want != cut_requests.back().second)
      cut_requests.emplace_back(i * 0.5, want);
  }
  const std::vector<std::pair<double, int>> expected{{0, 12}, {0.5, 9}, {10.5, 0}};
  EXPECT_EQ(cut_requests, expected);
}

TEST(Shedding, LayersAreBackSoonAfterTheLoadIsGone) {
  Shedding shedding(12, 50);
  Sessions sessions;
  for (Shedding::Id id = 0; id < 11; ++id) sessions[id] = {Priority::kNormal, 3};
  const auto asked = [&] {
    return std::ranges::any_of(
        sessions, [&](const auto& one) { return shedding.want(one.first).has_value(); });
  };
  for (int i = 0; i < 60; ++i) shedding.round(i * 0.5, {.work = 1}, sessions);
  for (const auto& [id, session] : sessions) EXPECT_EQ(shedding.want(id), 3) << id;
  double seconds = 0;
  for (; asked() && seconds < 60; seconds += 0.5) {
    shedding.round(30 + seconds, {.work = 0.1}, sessions);
  }
  EXPECT_LE(seconds, 25);
}

TEST(Shedding, FourDepthsAreWishedForAtMost) {
  Shedding shedding(12, 50);
  Sessions sessions;
  for (Shedding::Id id = 0; id < 40; ++id)
    sessions[id] = {static_cast<Priority>(id % 3), static_cast<int>(id % 4)};
  std::set<int> depths{12};
  for (int i = 0; i < 200; ++i) {
    shedding.round(i * 0.5, {.work = i < 60 ? 1.0 : 0.2}, sessions);
    for (const auto& [id, session] : sessions) {
      const int want = shedding.want(id).value_or(12);
      EXPECT_GE(want, session.can);
      if (want > 0) depths.insert(want);  // 0 is no depth: the edge runs all
    }
  }
  EXPECT_EQ(depths, (std::set<int>{3, 6, 9, 12}));
}

TEST(Shedding, ATenthChangesInARoundAndAllComeBack) {
  Shedding shedding(12, 50);
  Sessions sessions;
  for (Shedding::Id id = 0; id < 50; ++id) sessions[id] = {};
  const auto asked = [&] {
    int count = 0;
    for (const auto& [id, session] : sessions) count += shedding.want(id).has_value();
    return count;
  };
  shedding.round(0, {.work = 1}, sessions);
  EXPECT_EQ(asked(), 0);  // a tenth of the blocks: nearer to none than to a quarter
  shedding.round(0.5, {.work = 1}, sessions);
  EXPECT_EQ(asked(), 5);
  shedding.round(1, {.work = 1}, sessions);
  EXPECT_EQ(asked(), 10);
  for (int i = 3; i < 200; ++i) shedding.round(i * 0.5, {.work = 0}, sessions);
  EXPECT_EQ(asked(), 0);
}

}  // namespace
}  // namespace split::cloud
