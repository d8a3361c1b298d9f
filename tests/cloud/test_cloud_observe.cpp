// Tests /metrics and receipts, holds /openapi.json against what the cloud does, and checks
// that who has gone leaves the batch.
#include <atomic>
#include <mutex>

#include "base/revision.h"
#include "cloud_server/routes/routes.h"
#include "support/cloud_fixture.h"
#include "support/openapi_testing.h"
#include "support/prometheus_text.h"
#include "support/promtool.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

const std::string kSession = "000000000000000000000000000000aa";

TEST(CloudMetrics, CountWhatWasAskedAndNeverWhoOrWhat) {
  TestCloud cloud({"demo"});
  cloud.cloud.ready = true;
  Caller& ask = cloud.ask();
  EXPECT_EQ(ask.send("PUT", wire::session_path(kSession), R"({"cut":2})").status, 201);
  const Json step = {{"past", 0}, {"tokens", {1, 2, 3}}};
  EXPECT_EQ(ask.post(wire::session_forward_path(kSession), step).status, 200);
  const Json more = {{"past", 3}, {"tokens", {4}}, {"phase", "generate"}};
  EXPECT_EQ(ask.post(wire::session_forward_path(kSession), more).status, 200);
  EXPECT_EQ(ask.post("/v1/completions", {{"prompt", "canary words"}, {"max_tokens", 2}}).status,
            200);
  EXPECT_EQ(ask.get("/nowhere/canary").status, 404);
  EXPECT_EQ(ask.get(wire::session_path(std::string(32, 'b'))).status, 404);
  const http::Reply stage = ask.get("/v1/models/demo/stages/norm");
  EXPECT_EQ(stage.status, 200);
  EXPECT_EQ(http::last_words(cloud.port(), "BROKEN\r\n\r\n").substr(0, 12), "HTTP/1.1 400");

  const http::Reply reply = ask.get("/metrics");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto read = test::read_prometheus(reply.body);
  EXPECT_EQ(read.problems, std::vector<std::string>()) << reply.body;
  const auto requests = [&](const char* route, const char* code) {
    return read.value("split_http_requests_total", {{"route", route}, {"code", code}});
  };
  EXPECT_EQ(requests("/v1/sessions/{id}", "201"), 1);
  EXPECT_EQ(requests("/v1/sessions/{id}/forward", "200"), 2);
  EXPECT_EQ(requests("/v1/sessions/{id}", "404"), 1);
  EXPECT_EQ(requests("none", "404"), 1);
  EXPECT_EQ(requests("none", "400"), 1);
  EXPECT_EQ(read.value("split_http_request_duration_seconds_count",
                       {{"route", "/v1/sessions/{id}/forward"}}),
            2);
  EXPECT_EQ(read.value("split_build_info", {{"version", "test"},
                                            {"revision", std::string(source_revision())},
                                            {"model", "demo"},
                                            {"profile", "f32"}}),
            1);
  EXPECT_EQ(read.value("split_step_rows_count"), 4);
  EXPECT_EQ(read.value("split_step_sequences_sum"), 4);
  EXPECT_GE(read.value("split_connections"), 1);
  EXPECT_EQ(read.value("split_sessions"), 1);
  EXPECT_EQ(read.value("split_sessions_evicted_total"), 0);
  const test::PrometheusLabels model = {{"model", "demo"}};
  Shard& shard = cloud.cloud.models[0]->batcher().shard();
  EXPECT_EQ(read.value("split_kv_bytes", model), shard.page_bytes());
  EXPECT_EQ(read.value("split_kv_budget_bytes", model), shard.page_bytes() * shard.pages().total());
  EXPECT_EQ(read.value("split_queue_depth", model), 0);
  // Two prompts, one of them of the completion, whose two tokens are one step behind it.
  EXPECT_EQ(read.value("split_forward_duration_seconds_count", {{"phase", "prefill"}}), 2);
  EXPECT_EQ(read.value("split_forward_duration_seconds_count", {{"phase", "decode"}}), 2);
  EXPECT_EQ(read.value("split_tokens_total", {{"phase", "decode"}}), 2);
  EXPECT_GE(read.value("split_tokens_total", {{"phase", "prefill"}}), 5);
  EXPECT_GE(read.value("split_shard_bytes_total"), static_cast<double>(stage.body.size()));
  EXPECT_GT(read.value("process_cpu_seconds_total"), 0);
  for (const std::string& secret : {kSession, std::string("canary"), std::string("nowhere")}) {
    EXPECT_EQ(reply.body.find(secret), std::string::npos) << secret;
  }
}

// A rate needs a zero to begin at.
TEST(CloudMetrics, AreThereBeforeAnythingIsAsked) {
  TestCloud cloud({"rand-a"});
  const auto read = test::read_prometheus(cloud.ask().get("/metrics").body);
  EXPECT_EQ(read.value("split_http_requests_total",
                       {{"route", "/v1/sessions/{id}/forward"}, {"code", "200"}}),
            0);
  EXPECT_EQ(read.value("split_http_requests_total", {{"route", "none"}, {"code", "404"}}), 0);
  EXPECT_EQ(read.value("split_http_request_duration_seconds_count", {{"route", "/v1/completions"}}),
            0);
  EXPECT_EQ(read.value("split_tokens_total", {{"phase", "decode"}}), 0);
  for (const char* of_model :
       {"split_busy_ratio", "split_sequences_waiting", "split_sequences_running",
        "split_kv_usage_ratio", "split_replayed_rows_total", "split_sessions_moved_total"}) {
    EXPECT_EQ(read.value(of_model, {{"model", "rand-a"}}), 0) << of_model;
  }
  EXPECT_GE(read.value("split_loop_longest_turn_cpu_seconds"), 0);
  EXPECT_GE(read.value("split_loop_longest_turn_seconds"), 0);
}

// An endpoint picker chooses by these.
TEST(CloudMetrics, SayHowManySequencesWaitAndRunAndWhatTheyHold) {
  TestCloud cloud({"rand-a"});
  Batcher& batcher = cloud.cloud.models[0]->batcher();
  const auto read = [&](const char* name) {
    const auto text = test::read_prometheus(cloud.ask().get("/metrics").body);
    return text.value(name, {{"model", "rand-a"}});
  };
  std::mutex gate;
  std::unique_lock shut(gate);
  batcher.on_step([&](const StepSeen&) { const std::lock_guard wait(gate); });
  const std::string other = "000000000000000000000000000000bb";
  const std::string body = R"({"past":0,"tokens":[1,2,3]})";
  std::vector<http::Peer> peers;
  for (const std::string& id : {kSession, other}) {
    ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(id), R"({"cut":2})").status, 201);
    const size_t before = batcher.depth();
    peers.emplace_back(cloud.port());
    peers.back().say(http::post(cat("Content-Length: ", body.size(), "\r\n"), body,
                                wire::session_forward_path(id)));
    while (batcher.depth() == before) std::this_thread::yield();
    while (batcher.running() == 0) std::this_thread::yield();
  }
  EXPECT_EQ(read("split_sequences_waiting"), 1);
  EXPECT_EQ(read("split_sequences_running"), 1);
  EXPECT_EQ(read("split_kv_usage_ratio"), 1.0 / cloud.pages().total());
  const auto both = std::chrono::steady_clock::now();
  shut.unlock();
  for (http::Peer& peer : peers) EXPECT_TRUE(http::says(peer.answer(), 200));
  EXPECT_EQ(read("split_sequences_waiting"), 0);
  const double ran = read("split_sequences_running");
  // Between two steps they run still, on any machine that is not held up for a second here.
  if (std::chrono::steady_clock::now() - both < std::chrono::milliseconds(500)) {
    EXPECT_EQ(ran, 2);
  }
  EXPECT_EQ(read("split_kv_usage_ratio"), 2.0 / cloud.pages().total());
  while (batcher.running() > 0) std::this_thread::yield();  // a second later none does
}

// It is not what anybody asked for, and takes nobody's place.
TEST(CloudMetrics, DoNotCountWhatTheServerMeasures) {
  TestCloud cloud({"rand-a"});
  ServedModel& model = *cloud.cloud.models[0];
  uint32_t held = 0;
  std::atomic<bool> stop = false;
  std::jthread looks([&] {
    while (!stop) held = std::max(held, cloud.pages().in_use());
  });
  model.warm_up();
  model.measure();
  EXPECT_TRUE(model.costs());
  stop = true;
  looks.join();
  EXPECT_EQ(held, 0u);
  const auto read = test::read_prometheus(cloud.ask().get("/metrics").body);
  for (const char* phase : {"prefill", "decode"}) {
    EXPECT_EQ(read.value("split_tokens_total", {{"phase", phase}}), 0);
    EXPECT_EQ(read.value("split_forward_duration_seconds_count", {{"phase", phase}}), 0);
  }
  EXPECT_EQ(read.value("split_layer_rows_total"), 0);
  EXPECT_EQ(read.value("split_sequences_running", {{"model", "rand-a"}}), 0);
  EXPECT_EQ(read.value("split_busy_ratio", {{"model", "rand-a"}}), 0);
}

// Where all pages are taken it measures nothing, and no session gives way.
TEST(CloudMetrics, AMeasurementTakesNoPageFromASession) {
  TestCloud cloud({"rand-a"}, 147456);  // of one context
  const auto pages = static_cast<int>(cloud.pages().total());
  ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(kSession), R"({"cut":2})").status, 201);
  const std::vector<int> tokens(static_cast<size_t>(pages * 16), 1);
  ASSERT_EQ(cloud.ask()
                .post(wire::session_forward_path(kSession),
                      {{"past", 0}, {"tokens", tokens}, {"rows", "none"}})
                .status,
            204);
  cloud.cloud.models[0]->measure();
  EXPECT_FALSE(cloud.cloud.models[0]->costs());
  EXPECT_EQ(json_of(cloud.ask().get(wire::session_path(kSession)))["have"], tokens.size());
  EXPECT_EQ(cloud.cloud.sessions.evicted(), 0u);
}

TEST(CloudMetrics, PromtoolFindsNothing) {
  SKIP_WITHOUT_PROMTOOL();
  TestCloud cloud({"rand-a"});
  EXPECT_EQ(cloud.ask().post("/v1/completions", {{"prompt", {1}}, {"max_tokens", 2}}).status, 200);
  test::expect_promtool_finds_nothing(cloud.ask().get("/metrics").body);
}

TEST(CloudMetrics, AreForWhoMayAsk) {
  using For = Cloud::MetricsFor;
  const auto status = [](For who) {
    const auto adjust = [who](Cloud& cloud, http::Server::Options&) {
      cloud.keys = serve::ApiKeys::parse("ann:" + std::string(32, 'k') + "\n", "keys");
      cloud.metrics_for = who;
    };
    TestCloud cloud({"rand-a"}, 64 << 20, {}, Profile::kF32, adjust);
    const http::Headers key = {{"Authorization", "Bearer " + std::string(32, 'k')}};
    return std::pair(cloud.ask().get("/metrics").status, cloud.ask().get("/metrics", key).status);
  };
  EXPECT_EQ(status(For::kGuarded), std::pair(401, 200));
  EXPECT_EQ(status(For::kAnybody), std::pair(200, 200));
  EXPECT_EQ(status(For::kNobody).second, 404);
}

TEST(CloudSession, SaysWhatItCost) {
  TestCloud cloud({"rand-a"});
  Caller& ask = cloud.ask();
  ASSERT_EQ(ask.send("PUT", wire::session_path(kSession), R"({"cut":2})").status, 201);
  Json json = json_of(ask.get(wire::session_path(kSession)));
  for (const char* name : {"steps", "layer_rows", "bytes_in", "bytes_out"})
    EXPECT_EQ(json[name], 0);
  const std::string body = R"({"past":0,"tokens":[1,2,3]})";
  const http::Reply first = ask.send("POST", wire::session_forward_path(kSession), body);
  const std::string more = R"({"past":3,"tokens":[4]})";
  const http::Reply second = ask.send("POST", wire::session_forward_path(kSession), more);
  ASSERT_EQ(second.status, 200);
  EXPECT_EQ(ask.send("POST", wire::session_forward_path(kSession), "{}").status, 400);
  json = json_of(ask.get(wire::session_path(kSession)));
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["layer_rows"], 2 * 4);
  EXPECT_EQ(json["bytes_in"], body.size() + more.size());
  EXPECT_EQ(json["bytes_out"], first.body.size() + second.body.size());
  EXPECT_GT(json["compute_ms"], 0);
  EXPECT_GE(json["queue_ms"], 0);
}

TEST(CloudRequests, KeepTheirIds) {
  TestCloud cloud({"rand-a"});
  const auto id_of = [&](const http::Headers& headers) {
    return std::string(cloud.ask().get("/livez", headers).headers.get("X-Request-Id").value_or(""));
  };
  EXPECT_EQ(id_of({{"X-Request-Id", "edge-1.a_B"}}), "edge-1.a_B");
  const std::string drawn = id_of({});
  EXPECT_TRUE(is_lower_hex(drawn, 16)) << drawn;
  EXPECT_NE(id_of({}), drawn);
  EXPECT_TRUE(is_lower_hex(id_of({{"X-Request-Id", "two words"}}), 16));
}

// A client that has closed while its step waited for another: the step is never computed.
TEST(CloudSession, IsNotComputedForAClientThatHasGone) {
  TestCloud cloud({"rand-a"});
  Batcher& batcher = cloud.cloud.models[0]->batcher();
  std::mutex gate;
  std::unique_lock shut(gate);
  std::atomic<int> steps{0};
  batcher.on_step([&](const StepSeen&) {
    ++steps;
    const std::lock_guard wait(gate);  // the first leader holds the others up here
  });
  const std::string other = "000000000000000000000000000000bb";
  for (const std::string& id : {kSession, other}) {
    ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(id), R"({"cut":2})").status, 201);
  }
  const std::string body = R"({"past":0,"tokens":[1,2,3]})";
  const auto request = [&](const std::string& id) {
    return http::post(cat("Content-Length: ", body.size(), "\r\n"), body,
                      wire::session_forward_path(id));
  };
  http::Peer first(cloud.port());
  first.say(request(kSession));
  while (steps == 0) std::this_thread::yield();
  http::Peer second(cloud.port());
  second.say(request(other));
  while (batcher.depth() < 2) std::this_thread::yield();
  second.close();
  shut.unlock();
  EXPECT_TRUE(http::says(first.answer(), 200));
  while (batcher.depth() > 0) std::this_thread::yield();
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(json_of(cloud.ask().get(wire::session_path(other)))["have"], 0);
}

// --- /openapi.json

class OpenApi : public testing::Test {
 protected:
  OpenApi() {
    cloud.cloud.ready = true;
    cloud.cloud.legacy_routes = true;
    const Json model = json_of(cloud.ask().get("/v1/models/demo?format=f16"));
    parameters_ = {{"file", "config.json"},
                   {"folder", "1_Pooling"},
                   {"stage", "norm"},
                   {"name", "transformer.ln_f.weight"},
                   {"sid", std::string(32, 'c')},
                   {"hash", model["stages"].back()["blobs"][0]["sha256"].get<std::string>()}};
    EXPECT_EQ(cloud.ask().send("PUT", wire::session_path(kSession), R"({"to":0})").status, 201);
  }
  test::OpenApiCheck check() {
    return {json_of(cloud.ask().get("/openapi.json")),
            [this](const std::string& method, const std::string& path, const std::string& body,
                   const std::string& type) { return cloud.ask().send(method, path, body, type); },
            [this](const std::string& path) { return path_of(path); },
            {{"max_tokens", 4},
             {"count", 1},
             {"receipt",
              test::receipt_of(cloud.ask().send("POST", "/v1/completions", test::kAsksReceipt))},
             {"messages", {{{"role", "user"}, {"content", "a"}}}}}};
  }
  TestCloud cloud{{"demo", source("tests/golden/models/st-minilm")}};

 private:
  // With the braces filled.
  std::string path_of(std::string path) const {
    for (size_t at = 0; (at = path.find('{')) != std::string::npos;) {
      const size_t end = path.find('}', at);
      const std::string name = path.substr(at + 1, end - at - 1);
      const std::string value = name != "id"                        ? parameters_.at(name)
                                : path.starts_with("/v1/sessions/") ? kSession
                                : path.ends_with("{folder}/{file}") ? "st-minilm"
                                                                    : "demo";
      path.replace(at, end - at + 1, value);
    }
    return path;
  }
  std::map<std::string, std::string> parameters_;
};

TEST_F(OpenApi, HasEveryRouteAndNoOther) {
  check().expect_routes(cloud.server().router().routes());
  EXPECT_EQ(json_of(cloud.ask().get("/openapi.json"))["info"]["version"], "test");
}

// The fixture checks that the status of every answer in these tests is listed.
TEST_F(OpenApi, EveryOperationAnswersTheLeastRequest) { check().expect_least_answered(); }

TEST_F(OpenApi, RequiredFieldsAreRefusedWhenMissing) {
  EXPECT_GE(check().expect_required_refused(), 6u);
}

TEST_F(OpenApi, EveryFieldIsKnownAndNoOther) { check().expect_fields_known_and_no_other(); }

TEST_F(OpenApi, EveryFieldOfAQueryIsReadAndNoOther) {
  EXPECT_EQ(check().expect_query_known_and_no_other({{"/v1/sessions/{id}/forward", "past=0&"}},
                                                    {kStageRoute}),
            16u);
}

}  // namespace
}  // namespace split::cloud
