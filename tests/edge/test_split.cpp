// edge_client/split over a cloud that is an object of this test: driven as the program does, and by
// hand, on one thread with a clock of this test. Linked with common/run and edge_client/drive and
// nothing else, so that what is decided there stays without sockets, files and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "edge_client/drive/split_text.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

using edge::RemoteError;

// The whole model, some blocks of it in sessions.
class FakeCloud : public edge::CloudLink {
 public:
  explicit FakeCloud(const Golden& golden)
      : model_(*golden.model),
        device_(make_cpu_device(1)),
        shard_(*device_, model_, golden.weights(), options_for(model_)),
        batcher_(shard_) {}

  void open(const std::string& session, const StageRange& range) override {
    ++opened;
    if (!sessions_.contains(session)) sessions_[session] = {shard_.pages().open(), range};
  }
  std::vector<float> step(const std::string& session, const SequenceRows& rows,
                          edge::Traffic&) override {
    if (before_step) before_step(++steps_);
    const auto at = sessions_.find(session);
    if (at == sessions_.end()) throw RemoteError("no such session", 404, "session_unknown");
    EXPECT_EQ(rows.range, at->second.range);
    EXPECT_TRUE(shard_.pages().cut_back(at->second.sequence, rows.past));
    return append(batcher_, at->second.sequence, rows);
  }
  void close(const std::string& session) noexcept override { forget(session); }
  std::vector<float> forward(const SequenceRows& rows, edge::Traffic&) override {
    const SequenceId sequence = shard_.pages().open();
    std::vector<float> out = append(batcher_, sequence, rows);
    shard_.pages().close(sequence);
    return out;
  }
  Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const GenerateOptions& options, const OnText& on_text,
                     edge::SplitCounts&) override {
    ++completed;
    LocalForward whole(batcher_);
    return generate(whole, model_.config(), tokenizer, prompt, options, on_text);
  }

  void forget_all() {
    while (!sessions_.empty()) forget(sessions_.begin()->first);
  }
  size_t sessions() const { return sessions_.size(); }
  Batcher& batcher() { return batcher_; }

  std::function<void(int number)> before_step;  // of each step; may throw
  int opened = 0, completed = 0;

 private:
  struct Session {
    SequenceId sequence = 0;
    StageRange range = {};
  };
  void forget(const std::string& session) {
    const auto at = sessions_.find(session);
    if (at == sessions_.end()) return;
    shard_.pages().close(at->second.sequence);
    sessions_.erase(at);
  }

  const Model& model_;
  std::unique_ptr<Device> device_;
  Shard shard_;
  Batcher batcher_;
  std::map<std::string, Session> sessions_;
  int steps_ = 0;
};

// Waits no time.
struct NoTime : Waiter {
  bool interrupted() const override { return ended; }
  bool wait(std::chrono::milliseconds) override {
    ++waits;
    return !ended;
  }
  bool ended = false;
  int waits = 0;
};

// Drives flows on this thread, with a clock that only waiting moves.
struct ByHand {
  void drive(edge::Flow& flow) {
    for (;;) {
      const edge::Action action = flow.next(now);
      if (std::holds_alternative<edge::Done>(action)) return;
      try {
        if (const auto* wait = std::get_if<edge::Wait>(&action)) {
          now = std::max(now, wait->until);
        } else if (const auto* send = std::get_if<edge::Send>(&action)) {
          flow.give(ask(*send));
        } else {
          const auto& compute = std::get<edge::Compute>(action);
          compute.tail->run(*compute.job);
        }
      } catch (...) {
        flow.fail(std::current_exception());
      }
    }
  }
  std::vector<float> ask(const edge::Send& send) {
    sent.push_back(send.call);
    now += round_trip;
    if (send.call == edge::Send::kStep) return cloud.step(send.session, send.rows, *send.traffic);
    EXPECT_EQ(send.call, edge::Send::kOpen);
    cloud.open(send.session, send.rows.range);
    return {};
  }
  double ms() const {
    return std::chrono::duration<double, std::milli>(now - edge::Moment()).count();
  }

  FakeCloud& cloud;
  std::chrono::milliseconds round_trip{50};
  edge::Moment now = {};
  std::vector<edge::Send::Call> sent = {};
};

class SplitAlone : public testing::Test {
 protected:
  static GenerateOptions wanted() {
    GenerateOptions options;
    options.max_tokens = 12;
    options.sampling.seed = 3;
    options.ignore_end = true;
    return options;
  }
  int layers() const { return golden.model->config().layers; }
  template <typename Call>
  auto with(const edge::Placement& place, const Call& call) {
    const Model& model = *golden.model;
    std::optional<Shard> shard;
    std::optional<Batcher> tail;
    if (place.local()) {
      shard.emplace(*device, model, golden.weights(), options_for(model, place.range));
      tail.emplace(*shard);
    }
    const edge::RetryOptions retry;
    return call(
        edge::SplitRun{cloud, place, tail ? &*tail : nullptr, model, nullptr, retry, waiter});
  }
  // A text cut there; its head here or on the cloud.
  std::vector<int32_t> text(int cut, bool head_on_cloud = false) {
    edge::Options options;
    options.cut = cut;
    options.head_on_cloud = head_on_cloud;
    return text(edge::place(options, golden.model->config()));
  }
  std::vector<int32_t> text(const edge::Placement& place) {
    return with(place, [&](const edge::SplitRun& run) {
      return generate_text(run, prompt, wanted(), {}, counts).tokens;
    });
  }
  std::vector<int32_t> whole() {
    LocalForward forward(cloud.batcher());
    return generate(forward, golden.model->config(), nullptr, prompt, wanted(), {}).tokens;
  }

  const Golden golden{"rand-a"};
  const std::vector<int32_t> prompt{5, 11, 2, 40, 33, 17};
  const std::unique_ptr<Device> device = make_cpu_device(1);
  FakeCloud cloud{golden};
  NoTime waiter;
  edge::SplitCounts counts;
};

TEST_F(SplitAlone, EveryCutGivesTheWholeModelsText) {
  const std::vector<int32_t> expected = whole();
  for (int cut = 0; cut <= layers(); ++cut) {
    EXPECT_EQ(text(cut), expected) << cut;
    EXPECT_EQ(text(cut, true), expected) << cut << " with the head on the cloud";
  }
  EXPECT_EQ(cloud.sessions(), 0u);  // each was ended
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(waiter.waits, 0);
}

TEST_F(SplitAlone, ALostSessionGetsItsRowsAgain) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 5) cloud.forget_all();
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(counts.replays, 1u);
  EXPECT_EQ(cloud.opened, 2);
  EXPECT_EQ(waiter.waits, 1);
}

TEST_F(SplitAlone, WhatPassesIsAskedForAgainAndWhatDoesNotEndsIt) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 3 || number == 4) throw RemoteError("busy", 503, "busy");
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(waiter.waits, 2);
  EXPECT_EQ(counts.replays, 0u);
  cloud.before_step = [](int) { throw RemoteError("no", 400, "invalid_request"); };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
  cloud.before_step = [&](int) {
    waiter.ended = true;
    throw RemoteError("busy", 503, "busy");
  };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
}

TEST_F(SplitAlone, ACourseIsDrivenByOneThreadAndAnyClock) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(),
              options_for(model, StageRange::from_block(1, Point::head())));
  Batcher tail(shard);
  ByHand hand{cloud};
  {
    edge::Course course(model, 1, &tail, {}, counts);
    TextLoop loop(model.config(), nullptr, prompt, wanted());
    while (!loop.ended()) {
      hand.drive(course.run(loop.wanted()));
      loop.logits(course.results(), {});
    }
    EXPECT_EQ(loop.take().tokens, whole());
    using enum edge::Send::Call;
    EXPECT_EQ(hand.sent.size(), 13u);
    EXPECT_EQ(hand.sent[0], kOpen);
    EXPECT_EQ(std::ranges::count(hand.sent, kStep), 12);
    EXPECT_EQ(hand.ms(), 13 * 50);
    EXPECT_TRUE(course.leave().has_value());
    EXPECT_FALSE(course.leave().has_value());
  }
  EXPECT_EQ(shard.pages().in_use(), 0u);
  // Without end busy: the budget is one of that clock.
  cloud.before_step = [](int) { throw RemoteError("busy", 503, "busy"); };
  edge::Course course(model, 1, &tail, {}, counts);
  edge::Flow& flow = course.run({.range = {.to = Point::head()}, .tokens = prompt});
  const double before = hand.ms();
  EXPECT_THROW(hand.drive(flow), RemoteError);
  EXPECT_GE(hand.ms() - before, 30000);
  EXPECT_LE(hand.ms() - before, 33000);
  EXPECT_TRUE(flow.done());
}

TEST_F(SplitAlone, WithAllOnTheCloudItIsAskedForTheText) {
  edge::Placement place;
  place.all_on_cloud = true;
  EXPECT_EQ(text(place), whole());
  EXPECT_EQ(cloud.completed, 1);
  EXPECT_EQ(cloud.opened, 0);
}

TEST_F(SplitAlone, FinalStatesAreTheSameOnEitherSide) {
  const auto states = [&](const edge::Placement& place) {
    return with(place,
                [&](const edge::SplitRun& run) { return final_states(run, prompt, counts); });
  };
  edge::Placement there;
  there.all_on_cloud = true;
  edge::Options options;
  options.cut = 1;
  options.embed = true;
  EXPECT_EQ(states(edge::place(options, golden.model->config())), states(there));
}

}  // namespace
}  // namespace split::test
