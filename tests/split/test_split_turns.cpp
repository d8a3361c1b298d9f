// Turns of a chat that go on from rows which the one before left.
#include <gtest/gtest.h>

#include "edge_client/drive/session_cache.h"
#include "split/split_by_hand.h"

namespace split::test {
namespace {

// Turns of a chat, each of which is the last one and more.
class SplitTurns : public SplitAlone {
 protected:
  struct Turn {
    std::vector<int32_t> tokens;
    edge::SplitCounts counts;
    size_t rows_sent = 0;
  };
  SplitTurns() {
    prompt.clear();
    for (int32_t i = 0; i < 20; ++i) prompt.push_back((i * 37 + 5) % 300);
  }
  Turn turn(edge::SplitContext run, const std::string& owner, std::span<const int32_t> ids,
            bool phases_alike = true) {
    const edge::SessionCacheUse own{turns, owner, phases_alike};
    run.turns = &own;
    Turn made;
    const size_t before = cloud.rows_stepped;
    edge::SplitText text(run, ids, wanted(), made.counts);
    while (text.next({})) continue;
    made.tokens = text.take().tokens;
    text.keep();
    made.rows_sent = cloud.rows_stepped - before;
    return made;
  }
  std::vector<int32_t> whole(std::span<const int32_t> ids) {
    LocalForward forward(cloud.batcher());
    return generate(forward, golden.model->config(), nullptr, ids, wanted(), {}).tokens;
  }
  // Adds what a user says behind these.
  std::vector<int32_t> next_of(std::vector<int32_t> ids, const std::vector<int32_t>& said) {
    ids.insert(ids.end(), said.begin(), said.end());
    ids.insert(ids.end(), {7, 8, 9});
    return ids;
  }
  edge::Placement cut_at(int cut, bool head_on_cloud = false) {
    edge::PlacementRequest request;
    request.cut = cut;
    request.head = head_on_cloud ? edge::Head::kCloud : edge::Head::kEdge;
    return edge::place(request, golden.model->config());
  }

  edge::SessionCache turns{[this](const std::string& session) {
    cloud.ask({edge::Send::kClose, session});
  }};
};

TEST_F(SplitTurns, ANextTurnComputesAndSendsItsOwnRowsAlone) {
  for (int cut = 0; cut <= layers(); ++cut) {
    for (const bool head_on_cloud : {false, true}) {
      with(cut_at(cut, head_on_cloud), [&](const edge::SplitContext& run) {
        const Turn first = turn(run, "me", prompt);
        EXPECT_EQ(first.tokens, whole(prompt));
        EXPECT_EQ(first.counts.kept_rows, 0u);
        const std::vector<int32_t> ids = next_of(prompt, first.tokens);
        const Turn second = turn(run, "me", ids);
        EXPECT_EQ(second.tokens, whole(ids)) << "cut " << cut;
        // All but the last token was computed; twelve follow, of which the last is not.
        EXPECT_EQ(second.counts.kept_rows, 20u + 11) << "cut " << cut;
        EXPECT_EQ(second.rows_sent, cut == 0 ? 0 : 1u + 3 + 11) << "cut " << cut;
        EXPECT_EQ(second.counts.cloud_layer_rows, second.rows_sent * static_cast<size_t>(cut));
        // Words that come again share the prompt, but for its last row.
        const Turn again = turn(run, "me", ids);
        EXPECT_EQ(again.tokens, second.tokens);
        EXPECT_EQ(again.counts.kept_rows, ids.size() - 1);
        turns.drop_all();
      });
      EXPECT_EQ(cloud.sessions(), 0u);
    }
  }
  EXPECT_EQ(cloud.batcher().pages().in_use(), 0u);
}

TEST_F(SplitTurns, RowsAreOfTheirOwnersTextsAlone) {
  with(cut_at(1), [&](const edge::SplitContext& run) {
    const Turn first = turn(run, "me", prompt);
    const std::vector<int32_t> ids = next_of(prompt, first.tokens);
    const Turn other = turn(run, "you", ids);
    EXPECT_EQ(other.counts.kept_rows, 0u);
    EXPECT_EQ(other.rows_sent, ids.size() + 11);
    const Turn own = turn(run, "me", ids);
    EXPECT_EQ(own.counts.kept_rows, 31u);
    EXPECT_EQ(own.tokens, other.tokens);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, GeneratedRowsAreAPromptsWhereThePhasesAreAlikeAlone) {
  with(cut_at(1), [&](const edge::SplitContext& run) {
    const std::vector<int32_t> ids = next_of(prompt, turn(run, "me", prompt).tokens);
    const Turn second = turn(run, "me", ids, false);
    EXPECT_EQ(second.counts.kept_rows, 20u);
    EXPECT_EQ(second.tokens, whole(ids));
    turns.drop_all();
  });
}

TEST_F(SplitTurns, ATextThatPartsEarlyGoesOnFromWhereItParts) {
  with(cut_at(1), [&](const edge::SplitContext& run) {
    turn(run, "me", prompt);
    std::vector<int32_t> ids = prompt;
    ids[17] = 1;
    const Turn near = turn(run, "me", ids);
    EXPECT_EQ(near.counts.kept_rows, 17u);
    EXPECT_EQ(near.tokens, whole(ids));
    ids[15] = 1;  // with fewer in common they are not worth it
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 0u);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, ASessionThatIsGoneGetsItsRowsAgain) {
  with(cut_at(2), [&](const edge::SplitContext& run) {
    const std::vector<int32_t> ids = next_of(prompt, turn(run, "me", prompt).tokens);
    cloud.forget_all();
    const Turn second = turn(run, "me", ids);
    EXPECT_EQ(second.tokens, whole(ids));
    EXPECT_EQ(second.counts.replays, 1u);
    EXPECT_EQ(second.rows_sent, ids.size() + 11);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, GoOnWhereTheLastTextEndedAfterItsMoves) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  std::mutex mutex;
  Way way(cloud, mutex);
  const edge::RetryOptions retry;
  edge::PlacementRequest whole_there;
  whole_there.cut = edge::Cut::cloud();
  const edge::Placement there = edge::place(whole_there, model.config()), here = cut_at(0);
  edge::Moving moving;
  moving.options.deepest = layers();
  moving.connect = [&] { return std::make_unique<Way>(cloud, mutex); };
  edge::SplitContext streamed{way, there, &tail, model, nullptr, retry, waiter};
  streamed.moving = &moving;
  const edge::SplitContext alone{way, here, &tail, model, nullptr, retry, waiter};

  // Streamed twice: the session has the rows.
  std::vector<int32_t> ids = next_of(prompt, turn(streamed, "me", prompt).tokens);
  const Turn second = turn(streamed, "me", ids);
  EXPECT_EQ(second.tokens, whole(ids));
  EXPECT_EQ(second.counts.kept_rows, 31u);
  EXPECT_EQ(cloud.sessions(), 1u);

  // On its way here: then this machine has them, and the session is ended.
  ids = next_of(prompt, {1});
  moving.options.targets = {{.cut = 0, .at = 4}};
  const Turn moved = turn(streamed, "me", ids);
  EXPECT_EQ(moved.tokens, whole(ids));
  ASSERT_EQ(moved.counts.moves.size(), 1u);
  ids = next_of(ids, moved.tokens);
  const Turn own = turn(alone, "me", ids);
  EXPECT_EQ(own.tokens, whole(ids));
  EXPECT_EQ(own.counts.kept_rows, 24u + 11);
  EXPECT_EQ(own.rows_sent, 0u);
  turns.drop_all();
  EXPECT_EQ(cloud.sessions(), 0u);
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

TEST_F(SplitTurns, AreFewAndTheOldestGivesWay) {
  with(cut_at(1), [&](const edge::SplitContext& run) {
    std::vector<int32_t> ids = prompt;
    for (int32_t i = 0; i < 6; ++i) {
      ids[0] = i;
      turn(run, "me", ids);
      EXPECT_EQ(turns.size(),
                std::min<size_t>(static_cast<size_t>(i) + 1, edge::SessionCache::kMost));
      EXPECT_EQ(cloud.sessions(), turns.size());
    }
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 19u);
    ids[0] = 1;
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 0u) << "it gave way";
    // Those on another tail would hold its weights.
    turns.stay_on(nullptr);
    EXPECT_EQ(turns.size(), 0u);
    EXPECT_EQ(run.tail->pages().in_use(), 0u);
    turn(run, "me", ids);
    EXPECT_EQ(turns.size(), 0u);
  });
  EXPECT_EQ(cloud.sessions(), 0u);
}

TEST_F(SplitTurns, GiveWayToATextThatGetsNoPages) {
  const Model& model = *golden.model;
  const edge::Placement place = cut_at(1);
  ShardOptions small = options_for(model, place.range);
  small.kv_bytes = kv_bytes_for(model, place.range, Profile::kF32, 1);  // of one whole context
  Shard shard(*device, model, golden.weights(), small);
  Batcher tail(shard);
  tail.on_pages_spent([&] { return turns.make_room(tail); });
  const edge::RetryOptions retry;
  const edge::SplitContext run{cloud, place, &tail, model, nullptr, retry, waiter};
  turn(run, "me", prompt);
  std::vector<int32_t> other = prompt;
  other[0] = 1;
  other.resize(50, 2);  // with its text more than half of the pages
  const Turn made = turn(run, "me", other);
  EXPECT_EQ(made.tokens, whole(other));
  EXPECT_EQ(turns.size(), 1u);
  turns.drop_all();
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

}  // namespace
}  // namespace split::test
