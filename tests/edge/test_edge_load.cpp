// Texts beside a loaded cloud, over HTTP in this process: where this machine can take layers they
// go on here when they are asked for, and back when the load is gone; the text is the same. The
// cloud's clock goes on with its steps.
#include <atomic>

#include "edge_client/cloud/remote_link.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/server/answers.h"
#include "support/cloud_fixture.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

using cloud::TestCloud;
using cloud::Wishes;

constexpr double kSlo = 10'000;  // ms: far above what a step takes here
constexpr int kLowest = 2;       // the first block that is here
constexpr int kTokens = 300;

class NoWait : public Waiter {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
  bool interrupted() const override { return false; }
};

class EdgeLoad : public testing::Test {
 protected:
  EdgeLoad()
      : cloud({"demo"}, 64 << 20, {}, Profile::kF32,
              [this](cloud::Cloud& made, http::Server::Options&) {
                made.slo_ms = kSlo;
                made.clock = [this] { return Wishes::Time(std::chrono::milliseconds(now_ms)); };
                made.models[0]->batcher().on_step([this](const StepSeen&) { round(); });
              }) {}

  // Each step takes as long as a round.
  void round() {
    now_ms += Wishes::kRound.count();
    if (pressure > 0) cloud.cloud.models[0]->token_waited(pressure * kSlo);
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    edge::SplitCounts counts;
    int lowest = 1000;
  };
  // A text that begins at this cut, under pressure until it has moved below it.
  Outcome run(int cut, bool offers, std::deque<edge::Target> targets = {}) {
    edge::Placement place;
    place.all_on_cloud = cut == edge::Move::kCloud;
    if (!place.all_on_cloud) place.cut = cut;
    edge::Moving moving{{.deepest = layers(), .targets = std::move(targets)}, [this] {
                          return link(*remotes_.emplace_back(std::make_unique<edge::Remote>(
                              cloud.url(), std::chrono::seconds(60))));
                        }};
    moving.options.between = {};
    const auto text_link = moving.connect();
    Outcome outcome;
    const edge::SplitRun run{*text_link,    place,   place.all_on_cloud ? nullptr : &tail,
                             *golden.model, nullptr, retry,
                             waiter,        {},      &moving};
    GenerateOptions options = options_;
    edge::SplitText text(run, prompt, options, outcome.counts);
    if (offers) text.forward()->offer(tail, {});
    const auto on_text = [&](std::string_view, const ScoredToken*) {
      const int now = text.forward()->place().cut;
      if (now != edge::Move::kCloud) outcome.lowest = std::min(outcome.lowest, now);
      if (now != cut) pressure = 0;
      return true;
    };
    while (text.next(on_text)) continue;
    outcome.tokens = text.take().tokens;
    return outcome;
  }
  std::unique_ptr<edge::CloudLink> link(edge::Remote& remote) {
    if (info_.id.empty()) info_ = remote.model("demo");
    auto made =
        std::make_unique<edge::RemoteLink>(remote, info_, golden.model->config(), retry, waiter);
    made->set_moves(true);
    return made;
  }
  // The text that one machine alone writes.
  std::vector<int32_t> alone() {
    LocalForward forward(cloud.cloud.models[0]->batcher());
    return generate(forward, golden.model->config(), nullptr, prompt, options_, {}).tokens;
  }
  int layers() const { return golden.model->config().layers; }

  std::atomic<int64_t> now_ms{1'000'000};
  std::atomic<double> pressure{0};
  TestCloud cloud;
  test::Golden golden{"demo"};
  std::unique_ptr<Device> device = make_cpu_device(1);
  Shard shard{*device, *golden.model, golden.weights(),
              options_for(*golden.model, StageRange::from_block(kLowest, Point::head()))};
  Batcher tail{shard};
  edge::RetryOptions retry;
  NoWait waiter;
  const std::vector<int32_t> prompt = {5, 17, 200, 9, 31, 4, 77};
  GenerateOptions options_ = [] {
    GenerateOptions options;
    options.max_tokens = kTokens;
    options.sampling.temperature = 0.9f;
    options.sampling.seed = 5;
    options.ignore_end = true;
    return options;
  }();

 private:
  wire::ModelInfo info_;
  std::vector<std::unique_ptr<edge::Remote>> remotes_;
};

TEST_F(EdgeLoad, ATextTakesLayersThatALoadedCloudAsksForAndGivesThemBack) {
  const std::vector<int32_t> expected = alone();
  for (const int cut : {edge::Move::kCloud, layers(), layers() - 1}) {
    pressure = 2;
    const Outcome got = run(cut, true);
    EXPECT_EQ(got.tokens, expected) << cut;
    EXPECT_EQ(pressure, 0) << "it did not move from " << cut;
    ASSERT_GE(got.counts.moves.size(), 2u) << cut;
    for (const edge::Move& move : got.counts.moves) EXPECT_EQ(move.why, "asked_by_cloud");
    EXPECT_EQ(got.counts.moves.front().from, cut);
    EXPECT_EQ(got.counts.moves.back().to, cut);
    EXPECT_GE(got.lowest, kLowest);
    EXPECT_LE(got.lowest, 6);
    EXPECT_EQ(cloud.pages().in_use(), 0u);
    for (int i = 0; i < 100; ++i) round();  // the next text finds it calm
    cloud.cloud.models[0]->wishes().told();
  }
}

TEST_F(EdgeLoad, ATextStaysThatCanTakeNothing) {
  pressure = 2;
  const Outcome got = run(layers() - 1, false);
  EXPECT_EQ(got.tokens, alone());
  EXPECT_TRUE(got.counts.moves.empty());
}

TEST_F(EdgeLoad, ATextStaysWhereSomebodyWantsIt) {
  pressure = 2;
  const Outcome got = run(layers() - 1, true, {{.cut = 5, .at = 4}});
  EXPECT_EQ(got.tokens, alone());
  ASSERT_EQ(got.counts.moves.size(), 1u);
  EXPECT_EQ(got.counts.moves[0].why, "asked");
}

TEST_F(EdgeLoad, ALoadedCloudTakesFewGuesses) {
  options_.drafts = {.most = 7, .always = true};
  options_.sampling.temperature = 0;
  const std::vector<int32_t> expected = alone();
  const Outcome calm = run(4, false);
  pressure = 2;
  const Outcome loaded = run(4, false);
  EXPECT_EQ(calm.tokens, expected);
  EXPECT_EQ(loaded.tokens, expected);
  EXPECT_LT(loaded.counts.drafted, calm.counts.drafted / 4);
}

}  // namespace
}  // namespace split::test
