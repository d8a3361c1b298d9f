// edge_client --serve computes what prompts share once, here and on the cloud, and no text changes.
#include <gtest/gtest.h>

#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

// A cloud with a prompt cache, and the rows of prompts that each side computed.
struct Cached {
  explicit Cached(const std::string& model = "rand-a") {
    cloud::ModelOptions options;
    options.id = model;
    options.path = model_dir(model);
    options.device = "cpu";
    options.threads = 1;
    options.kv_budget = 64 << 20;
    cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
    Batcher& batcher = cloud.models[0]->batcher();
    batcher.keep_prefixes();
    batcher.on_step([this](const StepSeen& seen) { rows += seen.prompt_rows; });
    cloud.ready = true;
    running.emplace([this](http::Server& server) { cloud::add_routes(server, cloud); });
  }
  EdgeServer edge(const std::string& place) const {
    return EdgeServer({cat("--server=", running->url()), cat("--cache=", cache.path.string()),
                       "--retry-for=5", "--draft=off", place});
  }

  std::atomic<uint64_t> rows = 0;
  cloud::Cloud cloud;
  TemporaryFolder cache;
  std::optional<Running> running;
};

std::vector<int32_t> prompt_of(size_t count, int32_t last, int32_t first = 7) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = (first + 3 * static_cast<int32_t>(i)) % 60;
  ids.back() = last;
  return ids;
}

Json ask(EdgeServer& edge, const std::vector<int32_t>& prompt, bool cache = true,
         const char* key = "Bearer me", bool stream = false) {
  const Json body = {{"prompt", prompt},
                     {"temperature", 1},
                     {"seed", 5},
                     {"max_tokens", 9},
                     {"ignore_eos", true},
                     {"logprobs", 2},
                     {"cache_prompt", cache},
                     {"return_token_ids", true},
                     {"stream", stream},
                     {"stream_options", {{"include_usage", stream}}}};
  const http::Reply reply = Client(edge.url())
                                .request("POST", "/v1/completions", body.dump(), "application/json",
                                         {{"Authorization", key}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (!stream) return Json::parse(reply.body);
  const std::vector<std::string> events = events_of(reply.body);
  return Json::parse(events.at(events.size() - 2));
}

uint64_t cached(const Json& answer) {
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            answer["usage"]["splitcompute"]["cached_rows"]);
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<uint64_t>();
}

// Rows times layers of the cloud that led to a text.
int64_t led_layer_rows(const Json& answer) {
  const Json& cost = answer["usage"]["splitcompute"];
  return cost["cloud_layer_rows"].get<int64_t>() - cost["cloud_layer_rows_again"].get<int64_t>();
}

void expect_same(const Json& a, const Json& b, const std::string& where) {
  EXPECT_EQ(a["choices"][0]["token_ids"], b["choices"][0]["token_ids"]) << where;
  EXPECT_EQ(a["choices"][0]["logprobs"], b["choices"][0]["logprobs"]) << where;
}

TEST(EdgePromptCache, AKnownPromptIsComputedByNoSide) {
  for (const std::string cut : {"0", "1", "3", "cloud"}) {
    Cached all;
    EdgeServer edge = all.edge(cat("--cut=", cut));
    edge.ready();
    EXPECT_EQ(cached(ask(edge, prompt_of(50, 1))), 0u) << cut;
    EXPECT_EQ(all.rows.exchange(0), cut == "0" ? 0u : 50u) << cut;
    // A text that goes on from the last one's session has all of its rows.
    const Json next = ask(edge, prompt_of(50, 2));
    EXPECT_GE(cached(next), 48u) << cut;
    // Whole texts are kept of the last four; pages, of all.
    for (int32_t other = 20; other < 25; ++other) ask(edge, prompt_of(30, 1, other));
    all.rows = 0;
    const Json warm = ask(edge, prompt_of(50, 3));
    EXPECT_EQ(cached(warm), 48u) << cut;
    EXPECT_EQ(all.rows.exchange(0), cut == "0" ? 0u : 2u) << cut;
    EXPECT_GE(cached(ask(edge, prompt_of(50, 4), true, "Bearer me", true)), 48u) << cut;
    all.rows = 0;
    // Whoever sends another key takes none of it, and neither does who asks for none.
    EXPECT_EQ(cached(ask(edge, prompt_of(50, 3), true, "Bearer you")), 0u) << cut;
    const Json cold = ask(edge, prompt_of(50, 3), false);
    EXPECT_EQ(cached(cold), 0u) << cut;
    EXPECT_EQ(all.rows.exchange(0), cut == "0" ? 0u : 100u) << cut;
    const int layers = cut == "cloud" ? 3 : std::stoi(cut);  // that the cloud computes
    EXPECT_EQ(led_layer_rows(cold) - led_layer_rows(warm), 48 * layers) << cut;
    expect_same(warm, cold, cut);
    expect_same(next, ask(edge, prompt_of(50, 2), false), cut);
  }
}

// A text that moves takes what others may read, and writes beside nobody's rows.
TEST(EdgePromptCache, TextsThatMoveTakeAndLeaveRows) {
  Cached all;
  EdgeServer edge = all.edge("--moves=0:3,2:1,5:0");
  edge.ready();
  for (int round = 0; round < 3; ++round) {
    const std::vector<int32_t> prompt = prompt_of(48, round);
    const Json warm = ask(edge, prompt);
    EXPECT_EQ(cached(warm) > 0, round > 0) << round;
    const Json cold = ask(edge, prompt, false);
    EXPECT_EQ(cold["usage"]["splitcompute"]["moves"].size(), 2u);
    EXPECT_EQ(warm["usage"]["splitcompute"]["moves"].size(), 2u);
    expect_same(warm, cold, cat("round ", round));
  }
}

TEST(EdgePromptCache, TextsOfOneRequestComputeOnePrompt) {
  Cached all("demo");
  EdgeServer edge = all.edge("--cut=6");
  edge.ready();
  const Json body = {{"prompt", prompt_of(200, 1)},
                     {"n", 4},
                     {"seed", 3},
                     {"max_tokens", 3},
                     {"ignore_eos", true}};
  const Json four = edge.ask("/v1/completions", body);
  EXPECT_EQ(four["choices"].size(), 4u);
  EXPECT_EQ(four["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(all.rows.exchange(0), 200u + 3 * 8);
}

}  // namespace
}  // namespace split::test
