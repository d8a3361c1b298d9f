// The routes that clients of other servers ask of the edge: llama-server's, Ollama's, OpenAI's
// responses; and pages from elsewhere. Texts are those of the routes that they stand on.
#include <gtest/gtest.h>

#include "support/edge_server.h"
#include "support/http_peer.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

struct Pair {
  explicit Pair(const std::string& name = "demo") : cloud(name) {}
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                             "--retry-for=5"});
    return more;
  }
  GatedCloud cloud;
  TemporaryFolder cache;
};

// One edge of the demo model for all tests that only ask.
struct Demo : Pair {
  static EdgeServer& edge() {
    static ForAllTests<Demo> all;
    return all.get().edge_;
  }
  Demo() : edge_(arguments()) { edge_.ready(); }

 private:
  EdgeServer edge_;
};

TEST(EdgeRoutes, HealthAndPropsAreLlamaServers) {
  Pair pair("rand-a");
  std::atomic<bool> go{false};
  pair.cloud.reset({}, {}, [&](const http::Request&, int) -> std::optional<http::Response> {
    while (!go) std::this_thread::yield();
    return std::nullopt;
  });
  EdgeServer edge(pair.arguments({"--chat-template={role}> {content}\\n"}));
  for (const auto& [path, code] : {std::pair("/health", "not_ready"), {"/props", "loading"}}) {
    const http::Reply early = edge.get(path);
    EXPECT_EQ(early.status, 503) << path;
    EXPECT_EQ(Json::parse(early.body)["error"]["code"], code);
  }
  go = true;
  EXPECT_EQ(Json::parse(edge.ready().get("/health").body), (Json{{"status", "ok"}}));
  const Json props = Json::parse(edge.get("/props").body);
  EXPECT_EQ(props["model_alias"], "rand-a");
  EXPECT_EQ(props["n_ctx"], 64);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 64);
  EXPECT_EQ(props["total_slots"], 16);
  EXPECT_EQ(props["chat_template"], "{role}> {content}\\n");
}

TEST(EdgeRoutes, AWrongModelIsToldTheRightOne) {
  for (const auto& [path, field, value] :
       {std::tuple("/v1/completions", "prompt", Json("x")),
        {"/split/unsplit", "prompt", Json("x")},
        {"/v1/chat/completions", "messages", Json{{{"role", "user"}, {"content", "x"}}}},
        {"/v1/embeddings", "input", Json("x")}}) {
    const http::Reply reply = Demo::edge().post(path, {{"model", "gpt-4"}, {field, value}});
    EXPECT_EQ(reply.status, 404) << path;
    const Json error = Json::parse(reply.body)["error"];
    EXPECT_EQ(error["message"], "no model of this id: expected demo") << path;
    EXPECT_EQ(error["code"], "model_not_found");
  }
}

// A browser asks first; what it is not allowed, it does not send.
TEST(EdgeRoutes, PagesOfANamedOriginMayAskAndOthersMayNot) {
  Pair pair("rand-a");
  const auto ask = [](int port, const std::string& method, const std::string& origin) {
    return http::last_words(
        port,
        cat(method, " /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: ",
            origin, "\r\nAccess-Control-Request-Method: GET\r\n",
            "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n"));
  };
  const auto has = [](const std::string& answer, const std::string& part) {
    return answer.find(part) != answer.npos;
  };
  const std::string page = "https://page.example", other = "https://evil.example";
  const std::string allowed = "Access-Control-Allow-Origin: ";
  {
    EdgeServer edge(pair.arguments({"--cors-origin=" + page}));
    const int port = edge.ready().port();
    const std::string preflight = ask(port, "OPTIONS", page);
    EXPECT_TRUE(has(preflight, "HTTP/1.1 204")) << preflight;
    EXPECT_TRUE(has(preflight, allowed + page + "\r\n")) << preflight;
    EXPECT_TRUE(has(preflight, ", authorization,x-stainless-os\r\n")) << preflight;
    EXPECT_TRUE(has(ask(port, "GET", page), allowed + page)) << page;
    EXPECT_FALSE(has(ask(port, "OPTIONS", other), "Access-Control-Allow"));
    EXPECT_TRUE(has(ask(port, "GET", other), "HTTP/1.1 403"));
  }
  {
    EdgeServer edge(pair.arguments());
    const int port = edge.ready().port();
    EXPECT_FALSE(has(ask(port, "OPTIONS", page), "Access-Control-Allow"));
    EXPECT_TRUE(has(ask(port, "GET", page), "HTTP/1.1 403"));
  }
  EdgeServer edge(pair.arguments({"--cors-origin=*"}));
  EXPECT_TRUE(has(ask(edge.ready().port(), "GET", other), allowed + other));
  const Outcome wrong = run_edge(pair.arguments({"--serve", "--cors-origin=page.example"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("--cors-origin: expected http(s)://host"), std::string::npos);
}

}  // namespace
}  // namespace split::test
