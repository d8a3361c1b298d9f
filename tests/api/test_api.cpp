// The C library, as a program of somebody else's uses it: what it answers is what edge_client
// --serve answers, on the threads that ask.
#include <gtest/gtest.h>
#include <splitcompute.h>

#include <thread>

#include "support/depth/deep_templates.h"
#include "support/depth/worker_stack.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using nlohmann::json;

struct Opened {
  explicit Opened(const json& options) {
    std::array<char, 256> error{};
    edge = sc_open(options.dump().c_str(), error.data(), error.size());
    EXPECT_NE(edge, nullptr) << error.data();
  }
  ~Opened() { close(); }
  void close() { sc_close(std::exchange(edge, nullptr)); }
  sc_edge* edge = nullptr;
};

struct Answer {
  Answer(const Opened& opened, const char* method, const std::string& path, const json& body = {}) {
    const std::string text = body.is_null() ? "" : body.dump();
    answer = sc_ask(opened.edge, method, path.c_str(), text.c_str(), text.size());
  }
  ~Answer() { sc_free(answer); }
  int status() const { return sc_status(answer); }
  std::optional<std::string> next() const {
    size_t size = 0;
    const char* const text = sc_next(answer, &size);
    if (text == nullptr) return std::nullopt;
    EXPECT_EQ(text[size], 0);
    return std::string(text, size);
  }
  std::vector<std::string> all() const {
    std::vector<std::string> events;
    while (const auto event = next()) events.push_back(*event);
    return events;
  }
  json whole() const {
    const std::vector<std::string> events = all();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? json() : json::parse(events[0]);
  }
  sc_answer* answer;
};

json on(const std::string& url, json more = json::object()) {
  more.update({{"server", url}, {"device", "cpu"}, {"threads", 1}});
  return more;
}

json asked(const std::string& prompt, int tokens = 16, double temperature = 0) {
  return {{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", temperature}, {"seed", 3}};
}

std::string text_of(const json& answer) { return answer["choices"][0]["text"]; }

// A text, whatever differs from one answer to the next taken out.
std::string told(const std::string& answer) {
  json value = json::parse(answer, nullptr, false);
  if (!value.is_object()) return answer;
  for (const char* name :
       {"id", "created", "created_at", "usage", "total_duration", "eval_duration",
        "prompt_eval_duration", "load_duration", "response_id", "item_id"}) {
    value.erase(name);
  }
  return value.dump();
}

TEST(Api, AnswersAsTheServerDoes) {
  GatedCloud cloud("demo");
  TemporaryFolder cache;
  const std::string folder = cache.path.string();
  EdgeServer server({cat("--server=", cloud.url()), "--cut=3", "--cache=" + folder});
  server.ready();
  const Opened edge(on(cloud.http(), {{"cut", 3}, {"cache", folder}}));
  json chat = asked("");
  chat.erase("prompt");
  chat["messages"] = {{{"role", "user"}, {"content", "x"}}};
  json streamed = asked("The king", 16, 0.8);
  streamed["stream"] = true;
  const json lines = {{"model", "demo"},
                      {"prompt", "The king"},
                      {"options", {{"num_predict", 5}, {"temperature", 0}}}};
  struct {
    const char *method, *path;
    json body;
  } const kAsked[] = {{"POST", "/v1/completions", asked("The king")},
                      {"POST", "/v1/completions", asked("The king", 16, 0.8)},
                      {"POST", "/v1/completions", streamed},
                      {"POST", "/v1/completions", {{"what", 1}}},
                      {"POST", "/v1/chat/completions", chat},
                      {"POST", "/api/generate", lines},
                      {"POST", "/api/generate", {{"model", "none"}, {"prompt", "x"}}},
                      {"POST", "/tokenize", {{"content", "The king"}}},
                      {"POST", "/v1/embeddings", {{"input", "x"}}},
                      {"GET", "/v1/models", nullptr},
                      {"GET", "/v1/models/none", nullptr},
                      {"GET", "/readyz", nullptr},
                      {"GET", "/nothing", nullptr},
                      {"DELETE", "/v1/models", nullptr},
                      {"GET", "/v1/%zz", nullptr}};
  for (const auto& [method, path, body] : kAsked) {
    SCOPED_TRACE(cat(method, " ", path, " ", body.dump()));
    const http::Reply reply = http::Client(server.url())
                                  .request(method, path, body.is_null() ? "" : body.dump(),
                                           body.is_null() ? "" : "application/json");
    const Answer answer(edge, method, path, body);
    EXPECT_EQ(answer.status(), reply.status);
    std::vector<std::string> events;
    if (reply.body.starts_with("data: ")) {
      events = events_of(reply.body);
      EXPECT_EQ(events.back(), "[DONE]");
      events.pop_back();
    } else if (reply.body.find("\n{") != std::string::npos) {
      std::istringstream all(reply.body);
      for (std::string line; std::getline(all, line);) events.push_back(line);
    } else {
      events.push_back(reply.body);
    }
    std::ranges::transform(events, events.begin(), told);
    std::vector<std::string> got = answer.all();
    std::ranges::transform(got, got.begin(), told);
    EXPECT_EQ(got, events);
    EXPECT_EQ(answer.next(), std::nullopt);
  }
  EXPECT_TRUE(Answer(edge, "GET", "/openapi.json").whole()["paths"].contains("/v1/completions"));
  EXPECT_NE(Answer(edge, "GET", "/metrics").all()[0].find("split_edge_build_info{"),
            std::string::npos);
}

TEST(Api, BadOptionsAreOneLine) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"", "options:"},
      {"[]", "options: expected a JSON object"},
      {R"({"server":["x"]})", "options: 'server': expected a text or a number"},
      {R"({"server":true})", "options: 'server': expected a text or a number"},
      {R"({"exact":"yes"})", "options: 'exact': expected true or false"},
      {R"({"server":"ftp://x"})", "--server: "},
      {R"({"cut":"x"})", "--cut: expected"},
      {R"({"timeout":-1})", "--timeout: expected"},
      {R"({"cut":3,"cut":4})", "options: has the key 'cut' twice"},
      {R"({"no-such":1})", "options: an edge has none of the name 'no-such'"}};
  std::array<char, 200> error{};
  for (const auto& [options, line] : kWrong) {
    EXPECT_EQ(sc_open(options, error.data(), error.size()), nullptr) << options;
    EXPECT_TRUE(std::string_view(error.data()).starts_with(line)) << error.data();
    EXPECT_EQ(std::string_view(error.data()).find('\n'), std::string_view::npos);
  }
  for (const char* senseless : {"prompt", "prompt-file", "prompt-ids", "serve", "insecure", "json",
                                "jsonl", "out", "quiet", "plan", "embed", "log-format", "help",
                                "cors-origin", "allowed-host", "max-tokens", "completion"}) {
    EXPECT_EQ(sc_open(json{{senseless, "x"}}.dump().c_str(), error.data(), error.size()), nullptr);
    EXPECT_TRUE(std::string_view(error.data()).ends_with(cat("'", senseless, "'"))) << error.data();
  }
  error.fill('x');
  EXPECT_EQ(sc_open("[]", error.data(), 8), nullptr);
  EXPECT_STREQ(error.data(), "options");
  EXPECT_EQ(error[8], 'x');
  EXPECT_EQ(sc_open("[]", nullptr, 0), nullptr);
}

TEST(Api, NoHandleIsNoCrash) {
  EXPECT_STREQ(sc_version(), "0.1.0");
  std::array<char, 64> error{};
  EXPECT_EQ(sc_open(nullptr, error.data(), error.size()), nullptr);
  sc_close(nullptr);
  sc_cancel(nullptr);
  sc_free(nullptr);
  size_t size = 1;
  EXPECT_EQ(sc_ask(nullptr, "GET", "/livez", nullptr, 0), nullptr);
  EXPECT_EQ(sc_status(nullptr), 0);
  EXPECT_EQ(sc_next(nullptr, &size), nullptr);
  EXPECT_EQ(size, 0u);
}

// A cloud that gives no file of its model until it may.
class ApiHeld : public testing::Test {
 protected:
  ApiHeld() : cloud_("demo") {
    cloud_.on_file = [this](const http::Request&, int) -> std::optional<http::Response> {
      while (held_) std::this_thread::yield();
      return std::nullopt;
    };
  }
  ~ApiHeld() override { held_ = false; }
  json options() { return on(cloud_.http(), {{"cache", cache_.path.string()}}); }
  std::string alone(const json& body) {
    const http::Reply reply =
        http::Client(cloud_.http())
            .request("POST", "/v1/completions", body.dump(), "application/json");
    EXPECT_EQ(reply.status, 200) << reply.body;
    return text_of(json::parse(reply.body));
  }

  GatedCloud cloud_;
  std::atomic<bool> held_ = true;
  TemporaryFolder cache_;
};

TEST_F(ApiHeld, TheFirstWordComesBeforeTheModel) {
  json body = asked("The king", 24);
  const std::string expected = alone(body);
  body["stream"] = true;
  const Opened edge(options());
  const Answer answer(edge, "POST", "/v1/completions", body);
  ASSERT_EQ(answer.status(), 200);
  std::string text;
  for (int i = 0; i < 4; ++i) text += text_of(json::parse(*answer.next()));
  EXPECT_NE(text, "");
  EXPECT_EQ(Answer(edge, "GET", "/split/status").whole()["state"], "loading");
  EXPECT_EQ(Answer(edge, "GET", "/readyz").status(), 503);
  EXPECT_EQ(Answer(edge, "GET", "/openapi.json").status(), 200);
  held_ = false;
  for (const std::string& event : answer.all()) text += text_of(json::parse(event));
  EXPECT_EQ(text, expected);
}

TEST_F(ApiHeld, WhatElseNeedsTheModelWaitsForIt) {
  const Opened edge(options());
  const Answer tokens(edge, "POST", "/tokenize", {{"content", "The king"}});
  std::thread later([&] {
    const Answer first(edge, "POST", "/v1/completions", asked("The king", 1));
    EXPECT_EQ(first.status(), 200);  // it is met, and no more
    held_ = false;
  });
  EXPECT_EQ(tokens.status(), 200);
  later.join();
  EXPECT_GT(tokens.whole()["tokens"].size(), 0u);
}

TEST_F(ApiHeld, AnotherThreadCancels) {
  const Opened edge(options());
  const Answer waits(edge, "POST", "/tokenize", {{"content", "x"}});
  std::thread other([&] { sc_cancel(waits.answer); });
  EXPECT_EQ(waits.status(), 499);
  other.join();
  EXPECT_EQ(waits.whole()["error"]["code"], "cancelled");
  json body = asked("The king", 1000);
  body.update({{"stream", true}, {"ignore_eos", true}});
  std::string last = "[DONE]";
  // On a busy machine a text may be over before: then another one is cancelled.
  for (int tries = 0; tries < 10 && last == "[DONE]"; ++tries) {
    const Answer runs(edge, "POST", "/v1/completions", body);
    EXPECT_NE(runs.next(), std::nullopt);
    std::thread another([&] { sc_cancel(runs.answer); });
    const std::vector<std::string> events = runs.all();
    another.join();
    ASSERT_FALSE(events.empty());
    last = events.back();
  }
  EXPECT_EQ(json::parse(last)["error"]["code"], "cancelled");
}

TEST_F(ApiHeld, AnEdgeThatIsClosedEndsItsAnswers) {
  Opened edge(options());
  json body = asked("The king", 1000);
  body.update({{"stream", true}, {"ignore_eos", true}});
  const Answer idle(edge, "POST", "/v1/completions", body),
      runs(edge, "POST", "/v1/completions", body),
      waits(edge, "POST", "/tokenize", {{"content", "x"}}), fresh(edge, "GET", "/livez");
  EXPECT_NE(idle.next(), std::nullopt);
  EXPECT_NE(runs.next(), std::nullopt);
  std::vector<std::string> last(2);
  std::thread running([&] { last[0] = runs.all().back(); });
  std::thread waiting([&] { last[1] = waits.all().back(); });
  edge.close();
  running.join();
  waiting.join();
  for (const std::string& one : last)
    EXPECT_EQ(json::parse(one)["error"]["code"], "cancelled") << one;
  EXPECT_EQ(json::parse(idle.all().back())["error"]["code"], "cancelled");
  EXPECT_EQ(fresh.status(), 499);
}

TEST(Api, FourThreadsAskOneEdge) {
  GatedCloud cloud("demo");
  TemporaryFolder cache;
  const Opened edge(on(cloud.http(), {{"cut", 2}, {"cache", cache.path.string()}}));
  const Opened second(on(cloud.http(), {{"cut", 4}, {"cache", cache.path.string()}}));
  const std::string expected =
      text_of(Answer(edge, "POST", "/v1/completions", asked("The king")).whole());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Opened& one = i % 2 == 0 ? edge : second;
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(text_of(Answer(one, "POST", "/v1/completions", asked("The king")).whole()),
                  expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A caller's thread has 1 MiB, as the header says: a template ends with its text or is refused.
TEST(Api, EveryTemplateEndsOnACallersStack) {
  GatedCloud cloud("rand-a");
  int texts = 0, refused = 0;
  for (const std::string& chat : deep_chats()) {
    const Opened edge(on(cloud.http(), {{"cut", "cloud"}, {"chat-template", chat}}));
    stack_of([&] {
      for (size_t i = 0; i < std::size(kDeepTemplates); ++i) {
        const json asked = {{"messages", {{{"role", "user"}, {"content", cat(i)}}}}};
        const Answer answer(edge, "POST", "/apply-template", asked);
        ++(answer.status() == 200 ? texts : refused);
        EXPECT_TRUE(answer.status() == 200 || answer.status() == 400) << answer.status();
        EXPECT_EQ(answer.whole().contains("prompt"), answer.status() == 200);
      }
    });
  }
  EXPECT_GT(texts, 0);
  EXPECT_GT(refused, 0);
}

TEST(Api, ACloudThatIsNotThereIsTold) {
  const Opened edge(on("http://127.0.0.1:1", {{"retry-for", 0}}));
  const Answer answer(edge, "POST", "/v1/completions", asked("x"));
  EXPECT_EQ(answer.status(), 502);
  const json error = answer.whole()["error"];
  EXPECT_EQ(error["code"], "cloud_error");
  EXPECT_NE(std::string(error["message"]).find("127.0.0.1:1"), std::string::npos) << error;
}

}  // namespace
}  // namespace split::test
