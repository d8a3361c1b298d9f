// edge_client/split over a cloud that is an object of this test: driven as the program does, and by
// hand, on one thread with a clock of this test. Linked with common/run and edge_client/drive and
// nothing else, so that what is decided there stays without sockets, files and threads.
#include <gtest/gtest.h>

#include "split/split_by_hand.h"
#include "wire/codes.h"

namespace split::test {
namespace {

TEST_F(SplitAlone, EveryCutGivesTheWholeModelsText) {
  const std::vector<int32_t> expected = whole();
  for (int cut = 0; cut <= layers(); ++cut) {
    EXPECT_EQ(text(cut), expected) << cut;
    EXPECT_EQ(text(cut, true), expected) << cut << " with the head on the cloud";
  }
  EXPECT_EQ(cloud.sessions(), 0u);  // each was ended
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(cloud.rows_again, 0u);
  EXPECT_EQ(waiter.waits, 0);
}

TEST_F(SplitAlone, ALostSessionGetsItsRowsAgain) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 5) cloud.forget_all();
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(counts.replays, 1u);
  EXPECT_EQ(counts.losses, 1u);
  EXPECT_EQ(counts.survived, 1u);
  EXPECT_EQ(counts.work.rows, prompt.size() + 11);
  EXPECT_EQ(counts.work.cloud_layer_rows, prompt.size() + 11);    // of one block
  EXPECT_EQ(counts.cloud_layer_rows_again(), prompt.size() + 3);  // those before the fifth step
  EXPECT_EQ(cloud.opened, 2);
  EXPECT_EQ(waiter.waits, 1);
  EXPECT_EQ(cloud.rows_again, prompt.size() + 3);  // and the cloud was told which they are
}

// A balancer may keep the id at the server that refused it.
TEST_F(SplitAlone, ASessionThatAServerWhichDrainsDoesNotOpenHasAnotherIdTheNextTime) {
  const std::vector<int32_t> expected = whole();
  std::vector<std::string> ids;
  cloud.before_open = [&](const std::string& session) {
    ids.push_back(session);
    if (ids.size() < 3) throw RemoteError("draining", 503, wire::codes::kDraining);
  };
  EXPECT_EQ(text(1), expected);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[1], ids[2]);
  EXPECT_EQ(waiter.waits, 2);
  EXPECT_EQ(counts.losses, 0u);  // nothing of it was there
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(cloud.rows_again, 0u);
}

// Its session is there all the same.
TEST_F(SplitAlone, ALossIsOneHoweverOftenTheCloudIsAskedAgain) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number >= 3 && number <= 7) throw RemoteError("gone", 0, "");
    if (number == 9) throw RemoteError("gone", 0, "");
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(waiter.waits, 6);
  EXPECT_EQ(counts.losses, 2u);
  EXPECT_EQ(counts.survived, 2u);
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(counts.cloud_layer_rows_again(), 0u);
  cloud.before_step = [](int) {
    throw RemoteError("model_mismatch", 200, wire::codes::kModelMismatch);
  };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(counts.losses, 3u);
  EXPECT_EQ(counts.survived, 2u);
}

TEST_F(SplitAlone, WhatPassesIsAskedForAgainAndWhatDoesNotEndsIt) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 3 || number == 4) throw RemoteError("busy", 503, wire::codes::kBusy);
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(waiter.waits, 2);
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(counts.losses, 0u);
  cloud.before_step = [](int) { throw RemoteError("no", 400, "invalid_request"); };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
  cloud.before_step = [&](int) {
    waiter.ended = true;
    throw RemoteError("busy", 503, wire::codes::kBusy);
  };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
}

TEST_F(SplitAlone, ACourseIsDrivenByOneThreadAndAnyClock) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(),
              options_for(model, StageRange::from_block(1, Point::head())));
  Batcher tail(shard);
  ByHand hand(cloud);
  {
    edge::TextSession text_session(model, 1, &tail, {}, counts);
    TextLoop loop(model.config(), nullptr, prompt, wanted());
    while (!loop.ended()) {
      hand.drive(text_session, text_session.run(loop.wanted()));
      loop.logits(text_session.results(), {});
    }
    EXPECT_EQ(loop.take().tokens, whole());
    using enum edge::Send::Call;
    EXPECT_EQ(hand.sent.size(), 13u);
    EXPECT_EQ(hand.sent[0], kOpen);
    EXPECT_EQ(std::ranges::count(hand.sent, kStep), 12);
    EXPECT_GE(hand.ms(), 13 * 25);
    EXPECT_EQ(text_session.leave().size(), 1u);
    EXPECT_TRUE(text_session.leave().empty());
  }
  EXPECT_EQ(shard.pages().in_use(), 0u);
  // Without end busy: the budget is one of that clock.
  cloud.before_step = [](int) { throw RemoteError("busy", 503, wire::codes::kBusy); };
  edge::TextSession text_session(model, 1, &tail, {}, counts);
  edge::Flow& flow = text_session.run({.range = {.to = Point::head()}, .tokens = prompt});
  const double before = hand.ms();
  EXPECT_THROW(hand.drive(text_session, flow), RemoteError);
  EXPECT_GE(hand.ms() - before, 30000);
  EXPECT_LE(hand.ms() - before, 33000);
  EXPECT_TRUE(flow.done());
}

TEST_F(SplitAlone, WithAllOnTheCloudItIsAskedForTheText) {
  edge::Placement place;
  place.cut = edge::Cut::cloud();
  EXPECT_EQ(text(place), whole());
  EXPECT_EQ(cloud.completed, 1);
  EXPECT_EQ(cloud.opened, 0);
}

TEST_F(SplitAlone, FinalStatesAreTheSameOnEitherSide) {
  const auto states = [&](const edge::Placement& place) {
    return with(place,
                [&](const edge::SplitContext& run) { return final_states(run, prompt, counts); });
  };
  edge::Placement there;
  there.cut = edge::Cut::cloud();
  edge::PlacementRequest request;
  request.cut = 1;
  request.embed = true;
  EXPECT_EQ(states(edge::place(request, golden.model->config())), states(there));
}

// The vocabulary's matrix is as large as five blocks here.
TEST(Placement, AHeadOfMoreThanThreeBlocksStaysOnTheCloud) {
  const auto model = [](int vocab) {
    return make_model(cat(R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 16, "n_head": 2,
        "n_positions": 8, "vocab_size": )",
                          vocab, "}"));
  };
  edge::PlacementRequest request;
  request.cut = 2;
  const edge::Placement far = edge::place(request, *model(1000));
  EXPECT_TRUE(far.head_on_cloud);
  EXPECT_EQ(far.range, (StageRange{2, 4}));
  EXPECT_EQ(edge::head_line(far),
            "the vocabulary's matrix is as large as 5 blocks and stays on the cloud (--head "
            "edge)\n");
  const auto here = [&](const edge::Placement& place) {
    EXPECT_FALSE(place.head_on_cloud);
    EXPECT_EQ(edge::head_line(place), "");
  };
  here(edge::place(request, *model(500)));
  request.head = edge::Head::kEdge;
  here(edge::place(request, *model(1000)));
  request.head.reset();
  request.cut = 0;
  here(edge::place(request, *model(1000)));
}

}  // namespace
}  // namespace split::test
