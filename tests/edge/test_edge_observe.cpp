// Tests /metrics of the edge as a server, and holds its /openapi.json against what it does.
#include <gtest/gtest.h>

#include "base/revision.h"
#include "edge_client/server/page.h"
#include "edge_client/server/routes.h"
#include "support/edge_server.h"
#include "support/openapi_testing.h"
#include "support/prometheus_text.h"
#include "support/promtool.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

class EdgeObserve : public ::testing::Test {
 protected:
  EdgeObserve() : cloud("demo") {}
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {cat("--server=", cloud.url()), cat("--cache=", cache.path.string())});
    return more;
  }
  GatedCloud cloud;
  TemporaryFolder cache;
};

TEST_F(EdgeObserve, MetricsCountWhatWasAskedAndNeverWhoOrWhat) {
  EdgeServer edge(arguments({"--cut=5", "--draft=off"}));
  edge.ready();
  const Json status = edge.status();
  // On one connection: an answer is counted before the next request there is read.
  Client client(edge.url());
  const auto ask = [&](const char* path, const Json& wish) {
    const http::Reply reply = client.request("POST", path, wish.dump(), "application/json");
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body, nullptr, false);
  };
  Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 4}, {"ignore_eos", true}};
  const Json first = ask("/v1/completions", body)["usage"]["splitcompute"];
  // The cloud forgets the session once: asked again, with all tokens.
  cloud.reset([&](const http::Request& request, int n) -> std::optional<http::Response> {
    if (n == 2) cloud.cloud.sessions.remove(request.path_params[0]);
    return std::nullopt;
  });
  const Json second = ask("/v1/completions", body)["usage"]["splitcompute"];
  EXPECT_EQ(ask("/v1/embeddings", {{"input", "canary words"}})["data"].size(), 1u);
  EXPECT_EQ(client.request("GET", "/nowhere/canary").status, 404);

  const http::Reply reply = client.request("GET", "/metrics");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto read = read_prometheus(reply.body);
  EXPECT_EQ(read.problems, std::vector<std::string>()) << reply.body;
  EXPECT_EQ(
      read.value("split_http_requests_total", {{"route", "/v1/completions"}, {"code", "200"}}), 2);
  EXPECT_EQ(read.value("split_http_requests_total", {{"route", "none"}, {"code", "404"}}), 1);
  EXPECT_EQ(read.value("split_http_request_duration_seconds_count", {{"route", "/v1/embeddings"}}),
            1);
  EXPECT_EQ(read.samples.at("split_edge_placement_info").begin()->first,
            (PrometheusLabels{{"model", "demo"},
                              {"cut", "5"},
                              {"head", "edge"},
                              {"device", status["device"]["name"]}}));
  // Texts: two of a prompt and three tokens behind it; the embedding is a prompt and no text.
  EXPECT_EQ(read.value("split_edge_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(read.value("split_edge_inter_token_seconds_count"), 6);
  for (const char* where : {"cloud", "wire", "edge"}) {
    const auto sum_of = [&](const char* phase) {
      const PrometheusLabels labels = {{"phase", phase}, {"where", where}};
      EXPECT_EQ(read.value("split_edge_step_duration_seconds_count", labels),
                phase[0] == 'p' ? 2 : 6);
      return read.value("split_edge_step_duration_seconds_sum", labels);
    };
    const std::string ms = cat(where, "_ms");
    EXPECT_NEAR(1e3 * (sum_of("prefill") + sum_of("decode")),
                first[ms].get<double>() + second[ms].get<double>(), 0.01)
        << where;
  }
  EXPECT_EQ(read.value("split_edge_tokens_total", {{"kind", "generated"}}), 8);
  EXPECT_GE(read.value("split_edge_tokens_total", {{"kind", "prompt"}}), 8);
  const double layer_rows = read.value("split_edge_cloud_layer_rows_total");
  EXPECT_GE(layer_rows,
            first["cloud_layer_rows"].get<int>() + second["cloud_layer_rows"].get<int>());
  EXPECT_GT(read.value("split_edge_wire_bytes_total", {{"direction", "up"}}), 0);
  EXPECT_GT(read.value("split_edge_wire_bytes_total", {{"direction", "down"}}), 0);
  EXPECT_EQ(read.value("split_edge_shard_bytes_total", {{"source", "server"}}),
            status["bytes_downloaded"].get<double>());
  EXPECT_EQ(read.value("split_edge_shard_bytes_total", {{"source", "cache"}}), 0);
  EXPECT_EQ(read.value("split_edge_retries_total", {{"reason", "session_unknown"}}), 1);
  EXPECT_EQ(read.value("split_edge_replays_total"), 1);
  // This machine's steps, as the cloud's.
  EXPECT_EQ(read.value("split_forward_duration_seconds_count", {{"phase", "decode"}}), 6);
  EXPECT_EQ(read.value("split_tokens_total", {{"phase", "decode"}}), 6);
  EXPECT_EQ(read.value("split_kv_bytes"), 0);
  EXPECT_GT(read.value("split_kv_budget_bytes"), 0);
  EXPECT_EQ(read.value("split_queue_depth"), 0);
  EXPECT_GT(read.value("process_cpu_seconds_total"), 0);
  EXPECT_EQ(reply.body.find("canary"), reply.body.npos);
}

// The trace that a request came with, or that began with it, is the cloud's too.
TEST_F(EdgeObserve, TracesGoOnToTheCloud) {
  std::mutex mutex;
  std::vector<std::string> seen;  // of steps
  cloud.reset([&](const http::Request& request, int) -> std::optional<http::Response> {
    const std::lock_guard lock(mutex);
    seen.emplace_back(request.trace.id());
    return std::nullopt;
  });
  EdgeServer edge(arguments({"--cut=5"}));
  edge.ready();
  Client client(edge.url());
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string body = R"({"prompt":[1,2,3],"max_tokens":2,"ignore_eos":true})";
  const auto ask = [&](const http::Headers& headers) {
    EXPECT_EQ(client.request("POST", "/v1/completions", body, "application/json", headers).status,
              200);
    const std::lock_guard lock(mutex);
    return std::exchange(seen, {});
  };
  EXPECT_EQ(ask({{"traceparent", "00-" + id + "-00f067aa0ba902b7-01"}}),
            std::vector<std::string>(2, id));
  const std::vector<std::string> own = ask({});
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].size(), 32u);
  EXPECT_EQ(own[0], own[1]);
  EXPECT_EQ(edge.stop(), 0);
  const std::string log = edge.until("");
  for (const std::string& trace : {id, own[0]}) {
    EXPECT_NE(log.find("trace " + trace + "\n"), log.npos) << log;
  }
}

TEST_F(EdgeObserve, LogsARequestALine) {
  EdgeServer edge(arguments({"--cut=5"}));
  edge.ready().ask("/v1/completions", {{"prompt", {1}}, {"max_tokens", 2}});
  edge.get("/livez");
  EXPECT_EQ(edge.stop(), 0);
  const std::string log = edge.until("");
  EXPECT_NE(log.find(" 127.0.0.1 POST /v1/completions 200 "), log.npos) << log;
  EXPECT_EQ(log.find("/livez"), log.npos) << log;
  EXPECT_TRUE(log.ends_with(" stopped\n")) << log;
}

TEST_F(EdgeObserve, LogsInJsonToo) {
  EdgeServer edge(arguments({"--cut=cloud", "--log-format=json"}));
  edge.until("\"message\":\"ready\"}\n");
  EXPECT_EQ(edge.stop(), 0);
  std::istringstream lines(edge.until(""));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(Json::parse(line, nullptr, false).is_object()) << line;
  }
  EXPECT_GE(count, 5u);
}

TEST_F(EdgeObserve, PromtoolFindsNothing) {
  SKIP_WITHOUT_PROMTOOL();
  EdgeServer edge(arguments());
  edge.ready().ask("/v1/completions", {{"prompt", {1}}, {"max_tokens", 2}});
  expect_promtool_finds_nothing(edge.get("/metrics").body);
}

TEST_F(EdgeObserve, MetricsAreThereBeforeTheModel) {
  HeldManifests held(cloud);
  EdgeServer edge(arguments());
  const auto read = read_prometheus(edge.get("/metrics").body);
  EXPECT_EQ(read.problems, std::vector<std::string>());
  EXPECT_EQ(read.samples.count("split_edge_placement_info"), 0u);
  EXPECT_EQ(read.value("split_kv_budget_bytes"), 0);
  for (const char* reason : {"session_unknown", "no_answer", "busy", "error"}) {
    EXPECT_EQ(read.value("split_edge_retries_total", {{"reason", reason}}), 0) << reason;
  }
  held.let_go();
}

// Without a cloud to compute, a text of it alone, and moved: the placement follows.
TEST_F(EdgeObserve, MetricsFollowTheCut) {
  EdgeServer edge(arguments({"--cut=cloud"}));
  edge.ready();
  const auto cut = [&] {
    const auto read = read_prometheus(edge.get("/metrics").body);
    EXPECT_EQ(read.problems, std::vector<std::string>());
    return read.samples.at("split_edge_placement_info").begin()->first.at("cut");
  };
  EXPECT_EQ(cut(), "cloud");
  EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 7}}).status, 200);
  const auto read = read_prometheus(edge.get("/metrics").body);
  const auto& build = read.samples.at("split_edge_build_info").begin()->first;
  EXPECT_EQ(build.at("revision"), source_revision());
  EXPECT_EQ(build.at("model"), "demo");
  EXPECT_EQ(build.at("profile"), "f32");
  EXPECT_EQ(cut(), "7");
}

// The routes of a server that answers nothing.
struct EdgeRoutes {
  explicit EdgeRoutes(const std::string& cloud) {
    options.server = cloud;
    options.connector = InProcess::connect;
    world.environment = [](const char*) -> const char* { return nullptr; };
    placements.emplace(options, world.console, world.environment, interrupt);
    edge::add_routes(server.router(), *placements, edge::page_routes());
  }
  edge::Options options;
  World world;
  Interrupt interrupt;
  std::optional<edge::Placements> placements;
  http::Server server{{}};
};

class EdgeOpenApi : public EdgeObserve {
 protected:
  EdgeOpenApi() {
    edge_.ready();
    document_ = Json::parse(edge_.get("/openapi.json").body);
  }
  OpenApiCheck check() {
    http::Reply receipt;
    EXPECT_TRUE(soon([&] {  // 503 until weights are here whose bits are compared
      receipt = client_.request("POST", "/v1/completions", kAsksReceipt, "application/json");
      return receipt.status == 200;
    })) << receipt.body;
    const auto send = [this](const std::string& method, const std::string& path,
                             const std::string& body, const std::string& type) {
      http::Reply reply = client_.request(method, path, body, type);
      const std::string route = path == "/v1/models/demo" ? "/v1/models/{id}" : path;
      EXPECT_TRUE(lists(routes_.server.router().routes(), method, route, reply.status))
          << path << reply.status;
      return reply;
    };
    const auto path_of = [](const std::string& path) {
      return path == "/v1/models/{id}" ? "/v1/models/demo" : path;
    };
    return {document_,
            send,
            path_of,
            {{"cut", 6},
             {"max_tokens", 4},
             {"count", 1},
             {"receipt", receipt_of(receipt)},
             {"model", "demo"},
             {"messages", {{{"role", "user"}, {"content", "a"}}}}}};
  }
  EdgeServer edge_{arguments()};
  EdgeRoutes routes_{cloud.url()};
  Client client_{edge_.url()};
  Json document_;
};

TEST_F(EdgeOpenApi, HasEveryRouteAndNoOther) {
  check().expect_routes(routes_.server.router().routes());
}

TEST_F(EdgeOpenApi, EveryOperationAnswersTheLeastRequest) { check().expect_least_answered(); }

TEST_F(EdgeOpenApi, RequiredFieldsAreRefusedWhenMissing) {
  EXPECT_EQ(check().expect_required_refused(), 20u);
}

TEST_F(EdgeOpenApi, EveryFieldIsKnownAndNoOther) { check().expect_fields_known_and_no_other(); }

}  // namespace
}  // namespace split::test
