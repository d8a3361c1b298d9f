// The page's files, and what it asks of the edge beside OpenAI's routes. What a person does with it
// is in tests/page.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

class EdgePage : public ::testing::Test {
 protected:
  EdgePage()
      : cloud_("rand-a"),
        edge_({cat("--server=", cloud_.url()), cat("--cache=", cache_.path.string()), "--cut=1"}) {
    edge_.ready();
  }
  static Json wish() {
    return {{"prompt", {1, 2, 3}},
            {"max_tokens", 6},
            {"seed", 4},
            {"ignore_eos", true},
            {"return_token_ids", true}};
  }
  GatedCloud cloud_;
  TemporaryFolder cache_;
  EdgeServer edge_;
};

TEST_F(EdgePage, FilesAllowNothingFromElsewhereAndAreAskedForAgain) {
  const http::Reply page = edge_.get("/");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.get("Content-Type"), "text/html; charset=utf-8");
  const std::string policy(page.headers.get("Content-Security-Policy").value_or(""));
  EXPECT_TRUE(policy.starts_with("default-src 'none';")) << policy;
  EXPECT_EQ(policy.find("unsafe"), policy.npos) << policy;
  EXPECT_EQ(page.body.find("://"), page.body.npos);
  for (const char* file :
       {"/style.css", "/app.js", "/encoder.js", "/events.js", "/source.js", "/machines.js",
        "/answer.js", "/tally.js", "/chat.js", "/markdown.js", "/marked.js", "/kept.js", "/form.js",
        "/figures.js", "/plan.js", "/icon.svg", "/shown.js", "/trouble.js"}) {
    const http::Reply reply = edge_.get(file);
    EXPECT_EQ(reply.status, 200) << file;
    EXPECT_EQ(reply.headers.get("X-Content-Type-Options"), "nosniff") << file;
  }
  const std::string etag(page.headers.get("ETag").value_or(""));
  EXPECT_EQ(Client(edge_.url()).request("GET", "/", {}, {}, {{"If-None-Match", etag}}).status, 304);
  EXPECT_EQ(edge_.get("/../CMakeLists.txt").status, 404);
}

// A child that ends when it is told to.
struct Child {
  Child() : pid(::fork()) {
    if (pid != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~Child() {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  const pid_t pid;
};

TEST_F(EdgePage, ItsOwnButtonAloneEndsTheCloudThatWasNamed) {
  const auto stop = [](EdgeServer& edge, const http::Headers& headers) {
    return Client(edge.url()).request("POST", "/split/stop-cloud", {}, {}, headers).status;
  };
  const std::string own = edge_.url();
  EXPECT_EQ(stop(edge_, {{"Origin", own}}), 404);
  EXPECT_EQ(edge_.status()["server"]["stoppable"], false);

  Child named, other;
  EdgeServer edge({cat("--server=", cloud_.url()), cat("--cache=", cache_.path.string()), "--cut=1",
                   cat("--stops-cloud=", named.pid), "--cors-origin=https://friend.example"});
  edge.ready();
  EXPECT_EQ(edge.status()["server"]["stoppable"], true);
  for (const http::Headers& headers :
       {http::Headers{}, http::Headers{{"Origin", own}}, http::Headers{{"Origin", "null"}},
        http::Headers{{"Origin", "http://localhost:3000"}},
        http::Headers{{"Origin", "https://friend.example"}}}) {
    EXPECT_EQ(stop(edge, headers), 403) << headers.get("Origin").value_or("none");
  }
  EXPECT_EQ(edge.get("/split/stop-cloud").status, 405);
  EXPECT_EQ(::waitpid(named.pid, nullptr, WNOHANG), 0);
  EXPECT_EQ(stop(edge, {{"Origin", edge.url()}}), 200);
  int status = 0;
  EXPECT_EQ(::waitpid(named.pid, &status, 0), named.pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_EQ(stop(edge, {{"Origin", edge.url()}}), 200);  // it is gone
  EXPECT_EQ(::waitpid(other.pid, nullptr, WNOHANG), 0);
}

TEST(EdgeOptions, TheCloudIsStoppedFromThisMachineAlone) {
  for (const auto& [arguments, words] :
       {std::pair<std::vector<std::string>, const char*>{{"--stops-cloud=4000000", "--prompt=a"},
                                                         "--stops-cloud: expected --serve on this"},
        {{"--stops-cloud=4000000", "--serve=0.0.0.0:0", "--insecure"},
         "--stops-cloud: expected --serve on this"},
        {{"--stops-cloud=1", "--serve"}, "--stops-cloud: "},
        {{"--stops-cloud=2000000000", "--serve=127.0.0.1:0"}, "--stops-cloud 2000000000: "}}) {
    const Outcome got = run_edge(arguments);
    EXPECT_EQ(got.code, 2) << got.err;
    EXPECT_NE(got.err.find(words), std::string::npos) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
  }
}

TEST_F(EdgePage, TheCloudAloneWritesTheSame) {
  const Json split = edge_.ask("/v1/completions", wish());
  const Json whole = edge_.ask("/split/unsplit", wish());
  EXPECT_EQ(whole["choices"][0]["token_ids"], split["choices"][0]["token_ids"]);
  EXPECT_EQ(split["usage"]["splitcompute"]["cut"], 1);
  EXPECT_EQ(whole["usage"]["splitcompute"]["cut"], "cloud");
}

// A cut that was named stays named where something else of the placement changes, and a chosen one
// stays chosen, however the program began.
TEST_F(EdgePage, WhetherTheCutIsChosenIsToldAndOutlivesAnotherPlacement) {
  const auto put = [&](const char* path, const Json& wish) {
    const http::Reply reply = edge_.send("PUT", path, wish);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return edge_.status()["auto"];
  };
  EXPECT_EQ(edge_.status()["auto"], false);
  EXPECT_EQ(put("/split/placement", {{"format", "q8_0"}}), false);
  EXPECT_EQ(put("/split/cut", {{"cut", "auto"}}), true);
  EXPECT_EQ(put("/split/placement", {{"format", "auto"}}), true);
  EXPECT_EQ(put("/split/cut", {{"cut", 1}}), false);
  EXPECT_EQ(put("/split/placement", {{"device", "cpu"}}), false);
  EXPECT_EQ(edge_.status()["cut"], 1);
}

TEST_F(EdgePage, APlacementIsOfLaterAnswersAndARunningOneEndsAsItBegan) {
  const auto expected = edge_.ask("/v1/completions", wish())["choices"][0]["token_ids"];
  std::atomic<int> placed{0};
  cloud_.reset([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n == 1) placed = edge_.send("PUT", "/split/placement", {{"head", "cloud"}}).status;
    return std::nullopt;
  });
  const Json running = edge_.ask("/v1/completions", wish());
  cloud_.reset({});
  EXPECT_EQ(placed, 200);
  EXPECT_EQ(running["choices"][0]["token_ids"], expected);
  const Json later = edge_.ask("/v1/completions", wish());
  EXPECT_EQ(later["choices"][0]["token_ids"], expected);
  // A row of logits for each token, where the running one still took hidden states.
  EXPECT_GT(later["usage"]["splitcompute"]["bytes_down"],
            running["usage"]["splitcompute"]["bytes_down"]);
  const Json status = edge_.status();
  EXPECT_EQ(status["head"], "cloud");
  EXPECT_EQ(status["cut"], 1);
  EXPECT_EQ(status["models"], Json({"rand-a"}));
  EXPECT_EQ(status["kind"], "decoder");
}

TEST_F(EdgePage, APlacementNamesModelCutHeadFormatAndDevice) {
  const auto put = [&](const Json& wish) { return edge_.send("PUT", "/split/placement", wish); };
  const auto set = [&](const Json& wish) {
    const http::Reply reply = put(wish);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  };
  const auto expected = edge_.ask("/v1/completions", wish())["choices"][0]["token_ids"];
  EXPECT_EQ(set({{"cut", 0}})["cut"], 0);
  Json status = set({{"format", "q8_0"}, {"device", "cpu"}});
  EXPECT_EQ(status["format"], "q8_0");
  EXPECT_EQ(status["device_asked"], "cpu");
  EXPECT_EQ(status["cut"], 0);
  status = set({{"model", "rand-a"}, {"format", "auto"}, {"cut", "cloud"}});
  EXPECT_EQ(status["cut"], "cloud");
  EXPECT_EQ(edge_.ask("/v1/completions", wish())["choices"][0]["token_ids"], expected);
  for (const auto& [wrong, code] :
       std::initializer_list<std::pair<Json, int>>{{{{"model", "none"}}, 404},
                                                   {{{"head", "here"}}, 400},
                                                   {{{"format", "q9"}}, 400},
                                                   {{{"device", "abacus"}}, 400},
                                                   {{{"cut", 99}}, 400},
                                                   {{{"cut", "auto"}, {"head", "cloud"}}, 400},
                                                   {{{"running", true}}, 400}}) {
    const http::Reply reply = put(wrong);
    EXPECT_EQ(reply.status, code) << wrong << reply.body;
  }
  EXPECT_EQ(edge_.status()["cut"], "cloud");
  EXPECT_EQ(edge_.ask("/v1/completions", wish())["choices"][0]["token_ids"], expected);
}

TEST_F(EdgePage, EachStageIsTimedWhereItRuns) {
  const Json before = edge_.status()["stages"];
  for (const Json& stage : before) EXPECT_EQ(stage["ms"], nullptr);
  edge_.ask("/v1/completions", wish());
  const Json there =
      Json::parse(Client(cloud_.url()).request("GET", "/v1/models/rand-a/stages").body)["data"];
  const Json here = edge_.status()["stages"];
  ASSERT_EQ(here.size(), there.size());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(there[i]["stage"], here[i]["name"]);
    const bool cloud = here[i]["where"] == "cloud", norm = here[i]["name"] == "norm";
    EXPECT_EQ(there[i]["ms"].is_number(), cloud) << there;  // embed and the first block
    if (!cloud) {
      EXPECT_EQ(here[i]["ms"].is_number(), !norm) << here;
    }
  }
}

TEST_F(EdgePage, EachEventSaysWhatTheTextTookSoFar) {
  Json body = wish();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  int tokens = 0;
  double ms = 0;
  for (const std::string& event : events_of(edge_.post("/v1/completions", body).body)) {
    if (event == "[DONE]") break;
    const Json usage = Json::parse(event)["usage"];
    ASSERT_TRUE(usage.is_object()) << event;
    EXPECT_GE(usage["completion_tokens"], tokens);
    EXPECT_GE(usage["splitcompute"]["edge_ms"], ms);
    tokens = usage["completion_tokens"];
    ms = usage["splitcompute"]["edge_ms"];
    EXPECT_EQ(usage["splitcompute"]["steps"], tokens);
  }
  EXPECT_EQ(tokens, 6);
}

}  // namespace
}  // namespace split::test
