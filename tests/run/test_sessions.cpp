// The session that gives way, and that finding it is no more work beside many.
#include "run/sessions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/golden_model.h"

namespace split {
namespace {

using Put = Sessions::Put;

class SessionsInOrder : public testing::Test {
 protected:
  Put put(const SessionName& name, Batcher& batcher, size_t most = 0) {
    return sessions.put(name, "m", {.to = 1}, batcher, most);
  }
  void step(const SessionName& name) {
    const int32_t token = 1;
    EXPECT_TRUE(sessions.with(name, [&](Session& session) {
      SequenceRows rows{.tokens = std::span(&token, 1)};
      rows.range = session.range;
      test::append(*session.batcher, session.sequence, rows);
    }));
  }
  bool there(const SessionName& name) {  // and is used by that
    return sessions.with(name, [](Session&) {});
  }

  const test::Golden golden{"rand-a"};
  const std::unique_ptr<Device> device = make_cpu_device(1);
  Shard shard{*device, *golden.model, golden.weights(), test::options_for(*golden.model)};
  Shard second{*device, *golden.model, golden.weights(), test::options_for(*golden.model)};
  Batcher one{shard}, other{second};
  static constexpr size_t kLimit = 20'000;
  Sessions sessions{kLimit, std::chrono::milliseconds(0)};
};

TEST_F(SessionsInOrder, TheOneUsedLongestAgoGivesWayWhoseverItIs) {
  for (const char* id : {"1", "2", "3"}) {
    for (const char* owner : {"ann", "bob"}) {
      ASSERT_EQ(put({id, owner}, one), Put::kCreated);
      ASSERT_EQ(put({id, cat(owner, "'s other")}, other), Put::kCreated);
    }
  }
  EXPECT_FALSE(sessions.evict_one(one));  // none has rows
  for (const char* id : {"3", "1", "2"}) {
    step({id, "bob"});
    step({id, "ann's other"});
  }
  EXPECT_EQ(sessions.size_of(one), 6u);
  EXPECT_TRUE(there({"3", "bob"}));
  EXPECT_TRUE(sessions.evict_one(one));
  EXPECT_FALSE(there({"1", "bob"}));
  sessions.with({"2", "bob"}, [&](Session&) {  // one in use stays
    EXPECT_TRUE(sessions.evict_one(one));
    EXPECT_FALSE(sessions.evict_one(one));
  });
  EXPECT_FALSE(there({"3", "bob"}));
  EXPECT_TRUE(there({"2", "bob"}));
  EXPECT_EQ(sessions.size_of(one), 4u);
  EXPECT_EQ(sessions.size_of(other), 6u);
  // An owner's limit takes its own, with rows or without.
  EXPECT_EQ(put({"4", "ann"}, one, 3), Put::kCreated);
  EXPECT_FALSE(there({"1", "ann"}));
  EXPECT_EQ(sessions.evicted(), 3u);
  // A lost device took the rows of all: nobody gives way for rows that it has not.
  second.pages().forget();
  EXPECT_FALSE(sessions.evict_one(other));
  step({"1", "ann's other"});
  EXPECT_TRUE(sessions.evict_one(other));
  EXPECT_FALSE(there({"1", "ann's other"}));
  EXPECT_TRUE(there({"2", "ann's other"}));
}

// Against an order that is kept beside, over what clients do.
TEST_F(SessionsInOrder, IsTheOrderOfUseWhateverIsDone) {
  std::mt19937_64 random(1);
  std::vector<std::string> order;  // those with rows, used longest ago first
  const auto used = [&](const std::string& id) {
    std::erase(order, id);
    order.push_back(id);
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string id = cat(random() % 60);
    switch (random() % 5) {
      case 0:
        put(id, one);
        break;
      case 1:
        sessions.remove(id);
        std::erase(order, id);
        break;
      case 2:
        if (there(id) && std::ranges::find(order, id) != order.end()) used(id);
        break;
      case 3:
        if (one.pages().in_use() + 1 < one.pages().total() && there(id)) {
          step(id);
          used(id);
        }
        break;
      case 4:
        ASSERT_EQ(sessions.evict_one(one), !order.empty());
        if (order.empty()) break;
        EXPECT_FALSE(there(SessionName(order.front()))) << round;
        order.erase(order.begin());
        break;
    }
  }
}

// A step that finds no page looks at the session that gives way, and at no other of 20,000.
TEST_F(SessionsInOrder, MakingRoomIsNoMoreWorkBesideMany) {
  for (size_t i = 0; i + 100 < kLimit; ++i) {
    ASSERT_EQ(put(SessionName(cat("idle", i)), i % 2 == 0 ? one : other), Put::kCreated);
  }
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(put(SessionName(cat("busy", i)), one), Put::kCreated);
    step(SessionName(cat("busy", i)));
  }
  ASSERT_EQ(sessions.looked(), 0u);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(sessions.evict_one(one));
    ASSERT_EQ(sessions.looked(), i + 1);
    ASSERT_FALSE(there(SessionName(cat("busy", i))));
  }
  EXPECT_FALSE(sessions.evict_one(one));
  EXPECT_EQ(sessions.looked(), 50u);
  // A new one beyond the limit, and one beyond its owner's.
  for (int i = 0; sessions.size() < kLimit; ++i) {
    ASSERT_EQ(put({cat(i), "ann"}, one), Put::kCreated);
  }
  ASSERT_EQ(put({"new", "bob"}, one), Put::kCreated);
  EXPECT_EQ(sessions.looked(), 51u);
  EXPECT_FALSE(there(SessionName("idle0")));
  ASSERT_EQ(put({"new", "ann"}, one, 10), Put::kCreated);
  EXPECT_EQ(sessions.looked(), 52u);
  EXPECT_FALSE(there({"0", "ann"}));
}

}  // namespace
}  // namespace split
