// A text that the cloud begins and this machine ends: at whichever token the model is here, and
// however often the stream is lost, it is the cloud's own.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "edge_client/drive/split_text.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

using edge::RemoteError;

// A shard of the whole model.
struct Whole {
  explicit Whole(const Golden& golden)
      : device(make_cpu_device(1)),
        shard(*device, *golden.model, golden.weights(), options_for(*golden.model)),
        batcher(shard) {}
  std::unique_ptr<Device> device;
  Shard shard;
  Batcher batcher;
};

// A cloud that streams, until it breaks.
class StreamingCloud : public edge::CloudLink {
 public:
  StreamingCloud(const Golden& golden, Whole& whole) : golden_(golden), whole_(whole) {}

  FinishReason stream(const edge::Stream& asked, const OnToken& on_token) override {
    ++streams;
    again += asked.again ? 1 : 0;
    sessions.insert(asked.session);
    if (dead) throw RemoteError("gone", 0, "");
    LocalForward forward(whole_.batcher);
    int sent = 0;
    bool goes_on = true;
    const Generated made = generate(forward, golden_.model->config(), nullptr, asked.ids,
                                    asked.options, [&](std::string_view, const ScoredToken* token) {
                                      if (token == nullptr) return true;
                                      if (sent++ == breaks_after) throw RemoteError("gone", 0, "");
                                      if (before_token) before_token();
                                      return goes_on = on_token(*token);
                                    });
    return goes_on ? made.finish_reason : FinishReason::kNone;
  }
  std::vector<float> ask(const edge::Send& send) override {
    if (send.call != edge::Send::kClose) throw RemoteError("no rows", 500, "");
    sessions.erase(send.session);
    return {};
  }
  Generated complete(const Tokenizer*, std::span<const int32_t>, const GenerateOptions&,
                     const OnText&, edge::SplitCounts&) override {
    throw RemoteError("no completions", 500, "");
  }

  int breaks_after = -1;  // tokens of each stream
  bool dead = false;
  std::function<void()> before_token;
  int streams = 0, again = 0;
  std::set<std::string> sessions;

 private:
  const Golden& golden_;
  Whole& whole_;
};

// Waits by no time at all.
class NoWait : public Waiter {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
  bool interrupted() const override { return false; }
};

class HandOffs : public testing::Test {
 protected:
  struct Outcome {
    Generated text;
    edge::SplitCounts counts;
  };
  // The model is here once the text has so many tokens (never: -1), and the mover is done before
  // the next one comes, unless that is not waited for.
  Outcome hand_off(const GenerateOptions& options, int here_at, bool waits = true,
                   std::optional<double> foreseen_ms = {}) {
    cloud.streams = cloud.again = 0;
    edge::Placement place;
    place.cut = edge::Cut::cloud();
    edge::RetryOptions retry;
    retry.budget = std::chrono::seconds(5);
    const edge::Moving moving{
        {.deepest = golden.model->config().layers, .targets = {}, .leaves_lost_cloud = true},
        [this] { return std::make_unique<StreamingCloud>(golden, remote); }};
    Outcome outcome;
    const edge::SplitContext run{cloud, place,  nullptr, *golden.model, nullptr,
                                 retry, waiter, {},      &moving};
    edge::SplitText text(run, prompt, options, outcome.counts);
    edge::SplitForward& forward = *text.forward();
    int tokens = 0;
    cloud.before_token = [&] {
      // A text is slow once two tokens were.
      if (waits && here_at > 0 && tokens >= here_at + (foreseen_ms ? 2 : 0)) {
        while (forward.place().mover != "ready") std::this_thread::yield();
      }
    };
    const auto on_text = [&](std::string_view, const ScoredToken* token) {
      if (token == nullptr || ++tokens != here_at) return true;
      if (foreseen_ms) {
        forward.offer(local.batcher, {}, {.quicker = edge::FasterCut{0, *foreseen_ms}});
      } else {
        forward.offer(local.batcher, {}, {.offloads = true});
      }
      return true;
    };
    while (text.next(on_text)) continue;
    outcome.text = text.take();
    return outcome;
  }
  Generated alone(const GenerateOptions& options) {
    LocalForward forward(remote.batcher);
    return generate(forward, golden.model->config(), nullptr, prompt, options, {});
  }

  Golden golden{"rand-a"};
  Whole remote{golden}, local{golden};
  StreamingCloud cloud{golden, remote};
  NoWait waiter;
  const std::vector<int32_t> prompt = {5, 17, 200, 9, 31, 4, 77};
};

TEST_F(HandOffs, GiveTheCloudsTextAtWhicheverTokenTheModelIsHere) {
  for (const float temperature : {0.0f, 0.9f}) {
    GenerateOptions options;
    options.max_tokens = 24;
    options.sampling.temperature = temperature;
    options.sampling.repetition_penalty = 1.2f;
    options.sampling.seed = 11;
    // These depend on which ids are the prompt's.
    options.sampling.presence_penalty = 0.6f;
    options.sampling.frequency_penalty = 0.4f;
    options.sampling.min_p = 0.02f;
    options.sampling.logit_bias = {{5, 1.5f}};
    options.ignore_end = true;
    options.logprobs = 2;
    const Generated whole = alone(options);
    for (int here_at = -1; here_at <= 24; ++here_at) {
      const Outcome got = hand_off(options, here_at);
      ASSERT_EQ(got.text.tokens, whole.tokens) << here_at;
      ASSERT_EQ(got.text.finish_reason, whole.finish_reason);
      ASSERT_EQ(got.text.scored.size(), whole.scored.size());
      for (size_t i = 0; i < whole.scored.size(); ++i) {
        EXPECT_EQ(got.text.scored[i].logprob, whole.scored[i].logprob);
      }
      const bool moved = here_at > 0 && here_at + 1 < 24;
      ASSERT_EQ(got.counts.moves.size(), moved ? 1u : 0u) << here_at;
      if (moved) {
        EXPECT_EQ(got.counts.moves[0].at, static_cast<uint32_t>(here_at) + 1);
        EXPECT_EQ(got.counts.moves[0].from, edge::Cut::cloud());
        EXPECT_EQ(got.counts.moves[0].why, edge::Why::kLanded);
        EXPECT_GE(got.counts.moves[0].rows, prompt.size());
      }
    }
  }
  EXPECT_EQ(local.shard.pages().in_use(), 0u);
}

TEST_F(HandOffs, EndWhereTheModelEndsTheText) {
  GenerateOptions options;
  options.max_tokens = 40;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    options.sampling.temperature = 1.5f;
    options.sampling.seed = seed;
    const Generated whole = alone(options);
    for (const int here_at : {-1, 1, 9}) {
      const Outcome got = hand_off(options, here_at);
      ASSERT_EQ(got.text.tokens, whole.tokens);
      ASSERT_EQ(got.text.finish_reason, whole.finish_reason);
    }
  }
}

TEST_F(HandOffs, LoseAndDoubleNoTokenWhereTheStreamBreaks) {
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling.seed = 3;
  options.ignore_end = true;
  const Generated whole = alone(options);
  for (int breaks_after = 1; breaks_after <= 7; ++breaks_after) {
    cloud.breaks_after = breaks_after;
    for (const int here_at : {-1, 4, 11}) {
      const Outcome got = hand_off(options, here_at);
      ASSERT_EQ(got.text.tokens, whole.tokens) << breaks_after << " " << here_at;
      EXPECT_EQ(got.counts.losses, got.counts.survived);
      EXPECT_GE(got.counts.losses, got.counts.replays);  // one may go on here
      if (here_at < 0) {
        EXPECT_EQ(got.counts.losses, got.counts.replays);
        EXPECT_EQ(got.counts.losses, static_cast<uint64_t>(19 / breaks_after));
        EXPECT_EQ(cloud.again, cloud.streams - 1);  // and each but the first says so
      }
    }
  }
}

TEST_F(HandOffs, GoOnHereWhereTheCloudIsGone) {
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling.seed = 3;
  options.ignore_end = true;
  const Generated whole = alone(options);
  // The stream breaks behind four tokens, on the way here.
  cloud.breaks_after = 4;
  const Outcome got = hand_off(options, 4, false);
  EXPECT_EQ(got.text.tokens, whole.tokens);
  ASSERT_EQ(got.counts.moves.size(), 1u);
  EXPECT_EQ(got.counts.moves[0].at, 4u);
  EXPECT_EQ(got.counts.moves[0].why, edge::Why::kCloudLost);
  EXPECT_EQ(cloud.streams, 1);
  EXPECT_EQ(got.counts.losses, 1u);
  EXPECT_EQ(got.counts.survived, 1u);
  EXPECT_EQ(got.counts.replays, 0u);
}

// The times that it is foreseen to take here are such that no clock matters.
TEST_F(HandOffs, GoOnHereForSpeedAloneWhereThatIsQuicker) {
  constexpr double kNothing = 0, kYears = 1e12;  // ms
  GenerateOptions options;
  options.max_tokens = 100;
  options.sampling.seed = 3;
  options.ignore_end = true;
  const Generated whole = alone(options);
  const Outcome went = hand_off(options, 4, true, kNothing);
  EXPECT_EQ(went.text.tokens, whole.tokens);
  ASSERT_EQ(went.counts.moves.size(), 1u);
  EXPECT_EQ(went.counts.moves[0].why, edge::Why::kFastest);
  EXPECT_EQ(went.counts.moves[0].at, 7u);
  EXPECT_EQ(went.counts.moves[0].to, 0);
  EXPECT_EQ(cloud.streams, 1);
  const Outcome stayed = hand_off(options, 4, false, kYears);
  EXPECT_EQ(stayed.text.tokens, whole.tokens);
  EXPECT_TRUE(stayed.counts.moves.empty());
  // A cloud that is lost is no event all the same.
  cloud.breaks_after = 40;
  const Outcome left = hand_off(options, 4, false, kYears);
  EXPECT_EQ(left.text.tokens, whole.tokens);
  ASSERT_EQ(left.counts.moves.size(), 1u);
  EXPECT_EQ(left.counts.moves[0].why, edge::Why::kCloudLost);
  EXPECT_EQ(left.counts.moves[0].at, 40u);
  EXPECT_EQ(local.shard.pages().in_use(), 0u);
}

}  // namespace
}  // namespace split::test
