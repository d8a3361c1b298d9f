// Texts beside a loaded cloud, over HTTP in this process: where this machine can take layers they
// go on here when they are asked for, and back when the load is gone; the text is the same. The
// cloud's clock goes on with its steps.
#include <atomic>

#include "edge_client/cloud/model_link.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/engine/running_texts.h"
#include "support/cloud_fixture.h"
#include "support/edge_server.h"
#include "support/golden_model.h"
#include "wire/protocol.h"

namespace split::test {
namespace {

using cloud::CutRequests;
using cloud::TestCloud;

using Json = nlohmann::json;

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
                made.clock = [this] {
                  return CutRequests::Time(std::chrono::milliseconds(now_ms));
                };
                made.models[0]->batcher().on_step([this](const StepSeen& seen) {
                  layer_rows += seen.layer_rows;
                  round();
                });
              }) {}

  // Each step takes as long as a round.
  void round() {
    now_ms += CutRequests::kRound.count();
    if (pressure > 0) cloud.cloud.models[0]->token_waited(pressure * kSlo);
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    edge::SplitCounts counts;
    edge::Cut lowest = edge::Cut::cloud();
  };
  // A text that begins at this cut, under pressure until it has moved below it.
  Outcome run(edge::Cut cut, bool offers, std::deque<edge::Target> targets = {}) {
    edge::Placement place;
    place.cut = cut;
    edge::Moving moving{{.deepest = layers(), .targets = std::move(targets)}, [this] {
                          return link(*remotes_.emplace_back(std::make_unique<edge::Remote>(
                              cloud.here(), std::chrono::seconds(60), in_process())));
                        }};
    moving.options.between = moving.options.between_wishes = {};
    const auto text_link = moving.connect();
    Outcome outcome;
    const edge::SplitContext run{*text_link,    place,   cut.is_cloud() ? nullptr : &tail,
                                 *golden.model, nullptr, retry,
                                 waiter,        {},      &moving};
    GenerateOptions options = options_;
    edge::SplitText text(run, prompt, options, outcome.counts);
    if (offers) text.forward()->offer(tail, {});
    const auto on_text = [&](std::string_view, const ScoredToken*) {
      const edge::Cut now = text.forward()->place().cut;
      outcome.lowest = std::min(outcome.lowest, now);
      if (now != cut) pressure = 0;
      return true;
    };
    while (text.next(on_text)) continue;
    outcome.tokens = text.take().tokens;
    text.forward()->close();
    return outcome;
  }
  std::unique_ptr<edge::CloudLink> link(edge::Remote& remote) {
    if (info_.id.empty()) info_ = remote.model("demo");
    edge::LinkOptions options{info_, golden.model->config(), retry, waiter};
    options.moves = true;
    return std::make_unique<edge::ModelLink>(remote, std::move(options));
  }
  // The text that one machine alone writes.
  std::vector<int32_t> alone() {
    LocalForward forward(cloud.cloud.models[0]->batcher());
    return generate(forward, golden.model->config(), nullptr, prompt, options_, {}).tokens;
  }
  int layers() const { return golden.model->config().layers; }
  // The moves of the first answer that has some, of an edge whose texts follow the weights.
  Json moves_under_load(const std::string& url, std::vector<std::string> more = {}) {
    options_.sampling.top_p = 1;
    const std::vector<int32_t> expected = alone();
    const TemporaryFolder fresh;
    more.insert(more.end(), {cat("--server=", url), cat("--cache=", fresh.path.string()),
                             "--cut=auto", "--retry-for=5"});
    EdgeServer edge(more);
    edge.ready();
    const Json body = {{"prompt", prompt},      {"temperature", 0.9}, {"seed", 5},
                       {"max_tokens", kTokens}, {"ignore_eos", true}, {"return_token_ids", true}};
    Json moves;
    pressure = 2;
    for (int tries = 0; tries < 200 && moves.empty(); ++tries) {
      const Json json = edge.ask("/v1/completions", body);
      EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected);
      moves = json["usage"]["splitcompute"]["moves"];
    }
    return moves;
  }

  std::atomic<int64_t> now_ms{1'000'000};
  std::atomic<double> pressure{0};
  std::atomic<uint64_t> layer_rows{0};  // that the cloud counted
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
  for (const edge::Cut cut : {edge::Cut::cloud(), edge::Cut(layers()), edge::Cut(layers() - 1)}) {
    pressure = 2;
    const Outcome got = run(cut, true);
    EXPECT_EQ(got.tokens, expected) << cut;
    EXPECT_EQ(pressure, 0) << "it did not move from " << cut;
    ASSERT_GE(got.counts.moves.size(), 2u) << cut;
    for (const edge::Move& move : got.counts.moves) EXPECT_EQ(move.why, edge::Why::kAskedByCloud);
    EXPECT_EQ(got.counts.moves.front().from, cut);
    EXPECT_EQ(got.counts.moves.back().to, cut);
    EXPECT_GE(got.lowest, kLowest);
    EXPECT_LE(got.lowest, 6);
    EXPECT_TRUE(comes_true([&] { return cloud.pages().in_use() == 0; }));
    for (int i = 0; i < 100; ++i) round();  // the next text finds it calm
    cloud.cloud.models[0]->cut_requests().told();
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
  EXPECT_EQ(got.counts.moves[0].why, edge::Why::kAsked);
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

TEST_F(EdgeLoad, ReceiptsOfTextsAddUpToWhatTheCloudCounted) {
  uint64_t receipts = 0;
  pressure = 2;
  receipts += run(6, false).counts.cloud_layer_rows;
  receipts += run(3, false).counts.cloud_layer_rows;
  receipts += run(layers() - 1, false, {{.cut = 5, .at = 4}}).counts.cloud_layer_rows;
  receipts += run(layers() - 1, true).counts.cloud_layer_rows;  // moved by the cloud
  EXPECT_EQ(receipts, layer_rows);
}

// The first block's weights do not come: what has landed is offered, and taken when it is asked
// for.
TEST_F(EdgeLoad, AServingEdgeTakesLayersAsFarAsTheirWeightsHaveCome) {
  std::string held;
  const Json manifest = Json::parse(cloud.ask().get("/v1/models/demo").body);
  for (const Json& stage : manifest["stages"]) {
    for (const Json& blob : stage["blobs"]) {
      if (stage["name"] == "block.0") held += blob["sha256"].get<std::string>() + " ";
    }
  }
  ASSERT_FALSE(held.empty());
  const Running front([&](http::Server& server) {
    server.route("GET", "/v1/blobs/sha256/{hex}", [&](const http::Request& request) {
      if (held.find(request.path_params[0]) != std::string::npos) {
        return http::Response::json(503, R"({"error":{"message":"busy","code":"busy"}})");
      }
      http::Headers headers;
      if (const auto range = request.headers.get("Range"))
        headers.add("Range", std::string(*range));
      const http::Reply reply = Client(cloud.here()).request("GET", request.path, {}, {}, headers);
      http::Response response;
      response.status = reply.status;
      response.content_type = reply.headers.get("Content-Type").value_or("");
      response.body = reply.body;
      return response;
    });
    cloud::add_routes(server, cloud.cloud);
  });
  const Json moves = moves_under_load(front.url());
  ASSERT_FALSE(moves.empty());
  EXPECT_EQ(moves[0]["why"], "asked_by_cloud");
  EXPECT_EQ(moves[0]["from"], "cloud");
  EXPECT_GE(moves[0]["to"], 1);
  EXPECT_LE(moves[0]["to"], 6);
}

// The embedding and the first blocks do not fit into what the edge may take.
TEST_F(EdgeLoad, AnEdgeThatMayHoldAPartTakesLayersAsFarAsItGoes) {
  const wire::ModelInfo info = wire::parse_model_info(cloud.ask().get("/v1/models/demo").body);
  const auto steps = edge::growth_steps(*golden.model, info, {});
  uint64_t half = 0;
  for (size_t i = 0; i < 5; ++i) half += steps[i].bytes();  // head, blocks 7 to 4
  const Json moves = moves_under_load(cloud.here(), {cat("--max-weights=", half)});
  ASSERT_FALSE(moves.empty());
  EXPECT_EQ(moves[0]["why"], "asked_by_cloud");
  EXPECT_EQ(moves[0]["from"], "cloud");
  EXPECT_GE(moves[0]["to"], 4);
  EXPECT_LE(moves[0]["to"], 6);
  for (const Json& move : moves) EXPECT_TRUE(move["to"] == "cloud" || move["to"] >= 4) << moves;
}

}  // namespace
}  // namespace split::test
