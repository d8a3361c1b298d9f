// A loaded cloud and its sessions, over HTTP: with a clock of the test, so that no second
// passes.
#include <atomic>

#include "serve/api_keys.h"
#include "support/cloud_fixture.h"
#include "support/prometheus_text.h"
#include "wire/load_note.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

using wire::LoadNote;

constexpr double kSlo = 10'000;  // far above what a step takes here

constexpr char kKeys[] =
    "low:low-0123456789abcdef priority=low\n"
    "normal:normal-0123456789abcdef\n"
    "high:high-0123456789abcdef priority=high\n";

class CloudLoad : public testing::Test {
 protected:
  explicit CloudLoad(const TestCloud::Adjust& adjust = {})
      : cloud({"demo"}, 64 << 20, {}, Profile::kF32, [&](Cloud& made, http::Server::Options& o) {
          made.slo_ms = kSlo;
          made.clock = [this] { return CutRequests::Time(std::chrono::milliseconds(now_ms)); };
          if (adjust) adjust(made, o);
        }) {}

  static std::string id(int n) { return std::string(31, '0') + static_cast<char>('0' + n); }
  void open(Caller& caller, int n) {
    const http::Reply put =
        caller.send("PUT", wire::session_path(id(n)), R"({"model":"demo","to":8})");
    EXPECT_LT(put.status, 300) << put.body;
  }
  void open(int n) { open(cloud.ask(), n); }
  // The note in the answer to a step of one token.
  LoadNote step(Caller& caller, int n, Json fields) {
    if (!fields.contains("tokens")) fields["tokens"] = {1};
    fields.update({{"past", 0}, {"phase", "generate"}, {"rows", "none"}});
    const http::Reply reply = caller.post(wire::session_path(id(n)) + "/forward", fields);
    EXPECT_EQ(reply.status, 204) << reply.body;
    const auto header = reply.headers.get(wire::kLoadHeader);
    EXPECT_TRUE(header.has_value());
    const auto note = wire::parse_load_note(header.value_or(""));
    EXPECT_TRUE(note.has_value()) << header.value_or("");
    return note.value_or(LoadNote());
  }
  LoadNote step(int n, Json fields) { return step(cloud.ask(), n, std::move(fields)); }
  // So many rounds pass in which a token waits for such a part of what it may.
  void pass(int rounds, double waited) {
    for (int i = 0; i < rounds; ++i) {
      now_ms += CutRequests::kRound.count();
      if (waited > 0) model().token_waited(waited * kSlo);
      model().cut_requests().told();
    }
  }
  ServedModel& model() { return *cloud.cloud.models[0]; }
  Json load() { return json_of(cloud.ask().get("/v1/models/demo/load")); }

  std::atomic<int64_t> now_ms{1'000'000};
  TestCloud cloud;
};

TEST_F(CloudLoad, ACalmModelAsksForNothing) {
  open(1);
  EXPECT_EQ(step(1, {{"can", 0}}), LoadNote());
  pass(20, 0.1);
  EXPECT_EQ(step(1, {{"can", 0}}), LoadNote());
  EXPECT_TRUE(load()["want"].is_null());
  EXPECT_EQ(load()["price"], 0);
  EXPECT_EQ(load()["draft"], 7);
}

TEST_F(CloudLoad, OfTheSessionsThatCanItAsksLayersAndGivesThemLeaveToComeBack) {
  for (const int n : {1, 2, 3}) open(n);
  const auto all = [&] {
    return std::vector<LoadNote>{step(1, {{"can", 0}}), step(2, {{"can", 6}}), step(3, {})};
  };
  all();
  pass(7, 1.2);
  const std::vector<LoadNote> asked = all();
  ASSERT_TRUE(asked[0].want.has_value());
  EXPECT_LE(*asked[0].want, 6);
  EXPECT_EQ(asked[1].want.value_or(6), 6);
  EXPECT_EQ(asked[2].want, std::nullopt);  // its edge did not say what it can
  EXPECT_EQ(asked[0].price, 0.5);
  EXPECT_EQ(asked[0].draft, 3);
  EXPECT_LE(load()["want"], 6);
  EXPECT_EQ(load()["price"], 0.5);
  test::PrometheusReader metrics(cloud.ask().get("/metrics").body);
  EXPECT_NEAR(metrics.take().value("split_load_ratio", {{"model", "demo"}}), 1.2, 1e-6);
  for (int i = 0; i < 16; ++i) {
    pass(4, 0);
    all();
  }
  for (const LoadNote& note : all()) EXPECT_EQ(note, LoadNote());
  EXPECT_TRUE(load()["want"].is_null());
}

TEST_F(CloudLoad, ASessionIsAskedOnceInTenSeconds) {
  open(1);
  std::vector<int> wants;
  for (int i = 0; i < 40; ++i) {  // 20 seconds
    pass(1, 10);
    const int want = step(1, {{"can", 0}}).want.value_or(8);
    if (wants.empty() || want != wants.back()) wants.push_back(want);
  }
  EXPECT_EQ(wants, (std::vector<int>{8, 6, 0}));
}

TEST_F(CloudLoad, AWishedCutIsOneOfFourThatShareAStep) {
  open(1);
  for (int i = 0; i < 200; ++i) {
    pass(1, i < 100 ? 1.4 : 0);
    EXPECT_EQ(step(1, {{"can", 1}}).want.value_or(8) % 2, 0);
  }
}

TEST_F(CloudLoad, AStreamIsToldInComments) {
  open(1);
  step(1, {{"can", 0}});
  const Json body = {{"prompt", "Once upon a time"},
                     {"max_tokens", 8},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"can", 2}};
  const std::string path = "/v1/models/demo/sessions/" + id(1) + "/completions";
  const auto told = [&] {
    const http::Reply reply = cloud.ask().post(path, body);
    std::vector<std::string> comments;
    for (size_t at = 0; (at = reply.body.find(": Split-Load: ", at)) != std::string::npos; ++at) {
      comments.push_back(reply.body.substr(at + 14, reply.body.find('\n', at) - at - 14));
    }
    return comments;
  };
  EXPECT_EQ(told(), std::vector<std::string>{"price=0.00, draft=7"});
  pass(9, 2);
  step(1, {{"can", 2}});
  pass(1, 2);
  const auto comments = told();
  ASSERT_EQ(comments.size(), 1u);
  EXPECT_TRUE(comments[0].starts_with("want=")) << comments[0];
  EXPECT_GE(wire::parse_load_note(comments[0])->want, 2);
}

class CloudLoadOfLimits : public CloudLoad {
 protected:
  CloudLoadOfLimits()
      : CloudLoad([](Cloud& made, auto&) {
          made.keys = serve::ApiKeys::parse("few:few-0123456789abcdef rows_per_s=1", "keys");
        }) {}
};

TEST_F(CloudLoadOfLimits, FillsThatItAskedForAreFree) {
  Caller caller(cloud.url(), "few-0123456789abcdef");
  open(caller, 1);
  step(caller, 1, {{"can", 0}, {"tokens", std::vector<int>(20, 1)}});
  const Json fill = {{"fill", true}, {"past", 0}, {"count", 20}, {"to", 8}, {"rows", "none"}};
  const auto filled = [&] {
    return caller.post(wire::session_path(id(1)) + "/forward", fill).status;
  };
  EXPECT_EQ(filled(), 429);  // the step has spent what the key has in a second
  pass(5, 2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(filled(), 204);
}

class CloudLoadOfKeys : public CloudLoad {
 protected:
  CloudLoadOfKeys()
      : CloudLoad([](Cloud& made, auto&) { made.keys = serve::ApiKeys::parse(kKeys, "keys"); }) {}
};

TEST_F(CloudLoadOfKeys, LowOnesGiveFirst) {
  std::map<std::string, int> wants;
  const std::vector<std::string> names{"low", "normal", "high"};
  std::vector<std::unique_ptr<Caller>> callers;
  for (const std::string& name : names) {
    callers.push_back(std::make_unique<Caller>(cloud.url(), name + "-0123456789abcdef"));
    open(*callers.back(), 1);
    step(*callers.back(), 1, {{"can", 0}});
  }
  pass(5, 1.2);
  for (int seconds = 0; seconds < 15; ++seconds) {
    pass(2, 0.8);  // it stays as it is
    for (size_t i = 0; i < 3; ++i) {
      wants[names[i]] = step(*callers[i], 1, {{"can", 0}}).want.value_or(8);
    }
  }
  EXPECT_LT(wants["low"], wants["normal"]);
  EXPECT_LT(wants["normal"], wants["high"]);
}

}  // namespace
}  // namespace split::cloud
