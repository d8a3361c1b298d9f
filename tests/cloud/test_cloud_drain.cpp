// A cloud that drains: it keeps the sessions that it has, takes no new ones and no new texts, and
// is done when nobody steps any more. Rows that a session sends again because another was lost are
// counted.
#include <cmath>

#include "support/cloud_fixture.h"
#include "support/prometheus_text.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

std::string id(int n) { return std::string(31, '0') + static_cast<char>('0' + n); }
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5};

class Drain : public testing::Test {
 protected:
  Drain()
      : cloud({"demo"}, 64 << 20, {}, Profile::kF32, [this](Cloud& made, auto&) {
          made.ready = true;
          made.legacy_routes = true;
          made.clock = [this] { return now_.load(); };
        }) {}

  void drain() { cloud.cloud.drains_since = now_.load(); }
  void pass(std::chrono::milliseconds time) { now_ = now_.load() + time; }
  int put(int n) {
    return cloud.ask().send("PUT", wire::session_path(id(n)), R"({"cut":2})").status;
  }
  http::Reply step(int n, size_t past, const std::vector<int32_t>& tokens, Json more = {}) {
    Json body = {{"past", past}, {"tokens", tokens}};
    if (!more.is_null()) body.update(more);
    return cloud.ask().post(wire::session_forward_path(id(n)), body);
  }
  http::Reply text_on(int n, Json more = {}) {
    Json body = {{"prompt", kPrompt}, {"max_tokens", 3}, {"ignore_eos", true}, {"temperature", 0}};
    if (!more.is_null()) body.update(more);
    return cloud.ask().post("/v1/models/demo/sessions/" + id(n) + "/completions", body);
  }
  double metric(const std::string& name) {
    const auto read = test::read_prometheus(cloud.ask().get("/metrics").body);
    EXPECT_EQ(read.problems, std::vector<std::string>());
    return read.value(name, {{"model", "demo"}});
  }

 private:
  std::atomic<std::chrono::steady_clock::time_point> now_ = std::chrono::steady_clock::now();

 protected:
  TestCloud cloud;
};

void expect_draining(const http::Reply& reply) {
  expect_error(reply, 503, "draining", "");
  EXPECT_EQ(reply.headers.get("Retry-After"), "1");
}

TEST_F(Drain, SaysSoToWhoeverRoutes) {
  EXPECT_EQ(cloud.ask().get("/readyz").status, 200);
  drain();
  const http::Reply reply = cloud.ask().get("/readyz");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.body, "draining\n");
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  expect_error(cloud.ask().get("/health"), 503, "draining", "");
  cloud.cloud.ready = false;  // it stops
  EXPECT_EQ(cloud.ask().get("/readyz").status, 503);
}

TEST_F(Drain, GoesOnWithItsSessions) {
  ASSERT_EQ(put(1), 201);
  ASSERT_EQ(step(1, 0, kPrompt).status, 200);
  const Json before = json_of(text_on(2));
  drain();
  EXPECT_EQ(step(1, 5, {6}, {{"phase", "generate"}}).status, 200);
  EXPECT_EQ(put(1), 200);
  EXPECT_EQ(step(1, 0, kPrompt).status, 200);  // its rows again
  EXPECT_EQ(json_of(text_on(2))["choices"][0]["text"], before["choices"][0]["text"]);
  const http::Reply streamed = text_on(2, {{"stream", true}});
  EXPECT_EQ(streamed.status, 200);
  EXPECT_NE(streamed.body.find("[DONE]"), std::string::npos) << streamed.body;
  EXPECT_EQ(cloud.ask().get(wire::session_path(id(1))).status, 200);
  // A text of a session whose head is here: hidden states of it.
  const http::Reply hidden = cloud.ask().post_for_tensors(
      wire::session_forward_path(id(1)),
      {{"past", 5}, {"tokens", {7}}, {"phase", "generate"}, {"rows", "last"}});
  ASSERT_EQ(hidden.status, 200);
  EXPECT_EQ(cloud.ask().post_tensors("/v1/models/demo/forward?from=2&to=3", hidden.body).status,
            200);
  EXPECT_EQ(cloud.ask().send("DELETE", wire::session_path(id(1))).status, 204);
}

TEST_F(Drain, BeginsNoTextAndNoSession) {
  drain();
  Caller& ask = cloud.ask();
  expect_draining(ask.send("PUT", wire::session_path(id(1)), R"({"cut":2})"));
  expect_draining(ask.send("POST", "/v1/sessions", R"({"cut":2})"));
  expect_draining(text_on(1));
  expect_draining(text_on(1, {{"stream", true}}));
  EXPECT_EQ(cloud.cloud.sessions.size(), 0u);
  const Json messages = {{{"role", "user"}, {"content", "a"}}};
  expect_draining(ask.post("/v1/completions", {{"prompt", "a"}}));
  expect_draining(ask.post("/v1/chat/completions", {{"messages", messages}}));
  expect_draining(ask.post("/v1/embeddings", {{"input", "a"}}));
  expect_draining(ask.post("/v1/models/demo/forward", {{"tokens", {1}}}));
  const http::Reply typed =
      ask.post("/v1/messages", {{"model", "demo"}, {"max_tokens", 1}, {"messages", messages}});
  EXPECT_EQ(typed.status, 503) << typed.body;
  const http::Reply legacy =
      ask.send("POST", "/", "input_text=a&offline_layers=1", "application/x-www-form-urlencoded");
  EXPECT_EQ(legacy.status, 503) << legacy.body;
}

TEST_F(Drain, ServesWeightsAndWhatDescribesThem) {
  drain();
  const Json model = json_of(cloud.ask().get("/v1/models/demo?format=f16"));
  const std::string blob = model["stages"].back()["blobs"][0]["sha256"];
  EXPECT_EQ(cloud.ask().get(wire::blob_path(blob)).status, 200);
  EXPECT_EQ(cloud.ask().get("/v1/models/demo/files/config.json").status, 200);
  EXPECT_EQ(cloud.ask().get("/v1/models/demo/load").status, 200);
  EXPECT_EQ(cloud.ask().post("/tokenize", {{"content", "a"}}).status, 200);
  EXPECT_EQ(cloud.ask().get("/metrics").status, 200);
}

TEST_F(Drain, IsDoneWhenNobodySteppedFor10Seconds) {
  using std::chrono::seconds;
  EXPECT_FALSE(cloud.cloud.is_drained());
  ASSERT_EQ(put(1), 201);
  drain();
  EXPECT_FALSE(cloud.cloud.is_drained());  // whoever routes to it is yet to hear of it
  pass(seconds(9));
  ASSERT_EQ(step(1, 0, kPrompt).status, 200);
  pass(seconds(9));
  EXPECT_FALSE(cloud.cloud.is_drained());
  EXPECT_EQ(text_on(1).status, 409);  // of another range: no step
  pass(std::chrono::milliseconds(1001));
  EXPECT_TRUE(cloud.cloud.is_drained());
  ASSERT_EQ(step(1, 5, {6}).status, 200);
  EXPECT_FALSE(cloud.cloud.is_drained());
}

TEST_F(Drain, CountsRowsThatComeAgainAndTheirSessionOnce) {
  const auto features = json_of(cloud.ask().get("/v1/models/demo"))["features"];
  EXPECT_NE(std::ranges::find(features, "again"), features.end());
  EXPECT_EQ(metric("split_replayed_rows_total"), 0);  // before there are some
  EXPECT_EQ(metric("split_sessions_moved_total"), 0);
  ASSERT_EQ(put(1), 201);
  ASSERT_EQ(put(2), 201);
  ASSERT_EQ(step(1, 0, kPrompt).status, 200);
  EXPECT_EQ(metric("split_replayed_rows_total"), 0);
  ASSERT_EQ(step(2, 0, kPrompt, {{"again", true}, {"rows", "none"}}).status, 204);
  const Json more = {{"again", true}, {"phase", "generate"}, {"rows", "none"}};
  ASSERT_EQ(step(2, 5, {6, 7, 8}, more).status, 204);
  ASSERT_EQ(step(2, 8, {9}, {{"phase", "generate"}}).status, 200);
  EXPECT_EQ(metric("split_replayed_rows_total"), 8);
  EXPECT_EQ(metric("split_sessions_moved_total"), 1);
  EXPECT_EQ(step(2, 20, {1}, more).status, 409);
  EXPECT_EQ(metric("split_replayed_rows_total"), 8);
  expect_error(step(2, 9, {1}, {{"again", 1}}), 400, "invalid_request", "again");
  // A text's last row is no other's: it leads to a token that nobody had.
  ASSERT_EQ(text_on(3, {{"again", true}, {"generated", 2}}).status, 200);
  EXPECT_EQ(metric("split_replayed_rows_total"), 8 + 4);
  EXPECT_EQ(metric("split_sessions_moved_total"), 2);
  ASSERT_EQ(text_on(3, {{"again", true}, {"generated", 2}}).status, 200);  // it has them still
  EXPECT_EQ(metric("split_replayed_rows_total"), 8 + 4);
}

}  // namespace
}  // namespace split::cloud
