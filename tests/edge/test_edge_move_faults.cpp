// The network breaks at any byte of what a text that moves exchanges with the cloud, or the cloud
// forgets it: the same text, no token twice, and the cloud keeps nothing of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "edge/moving_pair.h"
#include "support/chaos_proxy.h"
#include "support/edge_server.h"
#include "support/prometheus_text.h"

namespace split::test {
namespace {

using Json = nlohmann::json;
using Fault = ChaosProxy::Fault;
using Way = ChaosProxy::Way;

class MoveFaults : public ::testing::Test {
 protected:
  static constexpr int kTokens = 24;
  static constexpr const char* kSteps = "POST /v1/sessions/";
  static constexpr const char* kStreams = "POST /v1/models/";

  // An exchange of a text, the first that begins with `of` and holds `holds`.
  struct Exchange {
    const char *moves, *of, *holds;
  };

  MoveFaults() : proxy_(pair_.cloud.port()) { pair_.through = proxy_.url(); }
  static int count() { return std::getenv("SPLIT_LONG") != nullptr ? 200 : 20; }

  void expect_text(const char* moves, int n) {
    const float temperature = n % 2 == 0 ? 0 : 0.9f;
    const auto seed = static_cast<uint64_t>(n);
    const Outcome got = pair_.run(moves, temperature, seed, kTokens, {"--timeout=1"});
    ASSERT_EQ(got.code, 0) << got.err;
    ASSERT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(),
              pair_.alone(temperature, 0.95f, seed, kTokens));
    expect_nothing_kept();
  }
  // Soon: whoever gave a request up has not waited for its end.
  void expect_nothing_kept() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (kv_bytes() > 0 && std::chrono::steady_clock::now() < end) continue;
    ASSERT_EQ(kv_bytes(), 0);
  }
  double kv_bytes() {
    PrometheusReader metrics(Client(pair_.cloud.url()).request("GET", "/metrics").body);
    return metrics.take().value("split_kv_bytes", {{"model", "rand-a"}});
  }
  static Fault any(std::minstd_rand& random) {
    constexpr Fault kAll[] = {Fault::kCut, Fault::kReset, Fault::kHalfClose, Fault::kSwallow};
    return kAll[random() % std::size(kAll)];
  }

  MovingPair& pair_ = MovingPair::of("rand-a");
  ChaosProxy proxy_;
};

TEST_F(MoveFaults, AtAnyByteLoseAndDoubleNoToken) {
  const Exchange exchanges[] = {
      // Fills: of this machine's blocks, of the cloud's, behind a stream, and on the way to here.
      {"0:3,4:1,9:3", kSteps, R"("fill":true)"},
      {"0:1,4:3,9:2", kSteps, R"("rows":"none")"},
      {"0:cloud,5:1,9:2", kSteps, R"("fill":true)"},
      {"0:2,5:1,9:0", kSteps, R"("fill":true)"},
      // A text that was here alone opens a session, and sends its rows.
      {"0:0,5:2,9:1", "PUT /v1/sessions/", ""},
      {"0:0,5:2", kSteps, R"("to":2,"tokens")"},
      // The first step behind a move.
      {"0:3,5:1", kSteps, R"("to":1,"tokens")"},
      {"0:1,5:3,9:cloud", kSteps, R"("to":3,"tokens")"},
      {"0:cloud,5:2,9:0", kSteps, R"("to":2,"tokens")"},
      // The streams: what a text begins with, and goes to.
      {"0:cloud,16:2", kStreams, ""},
      {"0:cloud,16:0", kStreams, ""},
      {"0:2,5:cloud", kStreams, ""},
  };
  std::map<size_t, std::pair<uint64_t, uint64_t>> sizes;
  std::minstd_rand random(11);
  for (int n = 0; n < count(); ++n) {
    const size_t which = static_cast<size_t>(n) % std::size(exchanges);
    const Exchange& exchange = exchanges[which];
    ChaosProxy::Plan plan{.fault = Fault::kCut,
                          .way = Way::kRequest,
                          .at = ~0ull,
                          .of = exchange.of,
                          .holds = exchange.holds};
    SCOPED_TRACE(cat(n, ": ", exchange.moves, " at ", exchange.of, exchange.holds));
    if (!sizes.contains(which)) {
      proxy_.plan(plan);
      ASSERT_NO_FATAL_FAILURE(expect_text(exchange.moves, n));
      sizes[which] = {proxy_.passed(Way::kRequest), proxy_.passed(Way::kAnswer)};
      ASSERT_GT(sizes[which].first, 100u);
      ASSERT_GT(sizes[which].second, 50u);
    }
    plan.fault = any(random);
    plan.way = random() % 2 == 0 ? Way::kRequest : Way::kAnswer;
    const auto [up, down] = sizes[which];
    plan.at = random() % (plan.way == Way::kRequest ? up : down);
    SCOPED_TRACE(cat("fault ", static_cast<int>(plan.fault), " at byte ", plan.at, " of the ",
                     plan.way == Way::kRequest ? "request" : "answer"));
    proxy_.plan(plan);
    ASSERT_NO_FATAL_FAILURE(expect_text(exchange.moves, n));
    // An answer's times are some digits longer or shorter.
    EXPECT_TRUE(proxy_.struck() == 1 || plan.at >= proxy_.passed(plan.way));
  }
}

// Between a fill and the step that goes on from it, and behind that step.
TEST_F(MoveFaults, ACloudThatForgetsTheTextAnywhereIsSentItAgain) {
  const int stride = count() == 200 ? 1 : 5;  // each answer, or every fifth
  for (const char* moves : {"0:3,4:1,9:3", "0:1,4:3,9:2", "0:cloud,5:1,9:2", "0:0,5:2,9:1"}) {
    int steps = 1;
    for (int at = -1; at < steps; at += stride) {
      SCOPED_TRACE(cat(moves, " behind answer ", at));
      pair_.cloud.reset([&](const http::Request& request, int n) {
        std::optional response(pair_.cloud.real(request));
        if (n == at) {
          while (pair_.cloud.cloud.sessions.evict_one(pair_.cloud.model().batcher())) continue;
        }
        return response;
      });
      ASSERT_NO_FATAL_FAILURE(expect_text(moves, 1));
      if (at < 0) steps = pair_.cloud.steps;
    }
    EXPECT_GT(steps, 8);
  }
}

// While stages land one after the other; each answer is whole, and a fault costs no more than time.
TEST_F(MoveFaults, AtAnyByteOfAStageLeaveTheTextsAndTheShardGrows) {
  std::minstd_rand random(12);
  const Json body = {{"prompt", pair_.prompt()}, {"temperature", 0.9}, {"seed", 5},
                     {"max_tokens", kTokens},    {"ignore_eos", true}, {"return_token_ids", true}};
  const std::vector<int32_t> expected = pair_.alone(0.9f, 1, 5, kTokens);
  uint64_t size = 0;
  for (int n = -1; n < count() / 4; ++n) {
    ChaosProxy::Plan plan{.fault = Fault::kCut,
                          .way = Way::kAnswer,
                          .at = ~0ull,
                          .step = static_cast<int>(random() % 4),
                          .of = "GET /v1/blobs/"};
    if (n >= 0) {
      plan.fault = any(random);
      plan.way = random() % 4 == 0 ? Way::kRequest : Way::kAnswer;
      plan.at = random() % (plan.way == Way::kRequest ? 100 : size);
    }
    SCOPED_TRACE(cat(n, ": fault ", static_cast<int>(plan.fault), " at byte ", plan.at, " of ",
                     plan.way == Way::kRequest ? "request " : "answer ", plan.step));
    proxy_.plan(plan);
    const TemporaryFolder fresh;
    std::vector<std::string> arguments =
        pair_.arguments({"--cut=auto", "--goal=offload", "--pace=0.1"});
    arguments.insert(arguments.end(), {"--timeout=1", cat("--cache=", fresh.path.string())});
    EdgeServer edge(arguments);
    edge.ready();
    Json cut = "cloud";
    for (int tries = 0; tries < 20000 && cut != 0; ++tries) {
      const Json json = edge.ask("/v1/completions", body);
      ASSERT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected);
      cut = json["usage"]["splitcompute"]["cut"];
    }
    EXPECT_EQ(cut, 0);
    edge.stop();
    expect_nothing_kept();
    if (n < 0) {
      size = proxy_.passed(Way::kAnswer);
      ASSERT_GT(size, 100u);
    } else {
      EXPECT_TRUE(proxy_.struck() == 1 || plan.at >= proxy_.passed(plan.way));
    }
  }
}

}  // namespace
}  // namespace split::test
