// The engine of edge_client, driven by a test: texts that begin before anything of their model is
// known here go on here from the ids that came, and are the cloud's own.
#include <gtest/gtest.h>

#include <thread>

#include "edge_client/engine/request.h"
#include "support/edge_server.h"
#include "text/utf8.h"

namespace split::test {
namespace {

using nlohmann::json;

// A cloud that gives no file of its model until it may.
struct HeldCloud {
  explicit HeldCloud(const std::string& name) : cloud(name) {
    cloud.on_file = [this](const http::Request&, int) -> std::optional<http::Response> {
      while (held) std::this_thread::yield();
      return std::nullopt;
    };
  }
  ~HeldCloud() { held = false; }
  // The answer of the cloud alone.
  json alone(const std::string& path, json body) {
    const http::Reply reply =
        Client(cloud.url()).request("POST", path, body.dump(), "application/json");
    EXPECT_EQ(reply.status, 200) << reply.body;
    return json::parse(reply.body);
  }
  std::vector<std::string> arguments() const {
    return {cat("--server=", cloud.url()), cat("--cache=", cache.path.string())};
  }
  GatedCloud cloud;
  std::atomic<bool> held = true;
  TemporaryFolder cache;
};

json of_messages(const std::string& said) {
  return {{"messages", {{{"role", "user"}, {"content", said}}}},
          {"temperature", 0},
          {"seed", 3},
          {"max_tokens", 24}};
}

json of_prompt(const std::string& said) {
  return {{"prompt", said}, {"temperature", 0}, {"seed", 3}, {"max_tokens", 24}};
}

const char* const kModels[] = {"demo", "models/qwen2"};  // without a chat template, and with one

TEST(EngineOpens, CompletionsAndChatsAnswerBeforeTheModelIsKnown) {
  for (const char* name : kModels) {
    HeldCloud held(name);
    const json text = held.alone("/v1/completions", of_prompt("The king"));
    const json chat = held.alone("/v1/chat/completions", of_messages("The king"));
    EdgeServer edge(held.arguments());
    edge.url();
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    http::Reply reply;
    do {  // until it knows which models there are
      reply = edge.post("/v1/completions", of_prompt("The king"));
    } while (reply.status == 503 && std::chrono::steady_clock::now() < patience);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json answer = json::parse(reply.body);
    EXPECT_EQ(answer["choices"][0]["text"], text["choices"][0]["text"]);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], text["choices"][0]["finish_reason"]);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], text["usage"]["prompt_tokens"]);
    EXPECT_EQ(answer["usage"]["completion_tokens"], text["usage"]["completion_tokens"]);
    EXPECT_EQ(answer["usage"]["splitcompute"]["cut"], "cloud");
    const json said = edge.ask("/v1/chat/completions", of_messages("The king"));
    EXPECT_EQ(said["choices"][0]["message"], chat["choices"][0]["message"]);
    EXPECT_EQ(said["usage"]["prompt_tokens"], chat["usage"]["prompt_tokens"]);
    json streamed = of_messages("The king");
    streamed["stream"] = true;
    std::string pieces;
    for (const std::string& event : events_of(edge.post("/v1/chat/completions", streamed).body)) {
      if (event == "[DONE]") continue;
      pieces += json::parse(event)["choices"][0]["delta"].value("content", "");
    }
    EXPECT_EQ(pieces, chat["choices"][0]["message"]["content"]);
    EXPECT_EQ(edge.status()["state"], "loading");
    held.held = false;
    EXPECT_EQ(edge.ready().ask("/v1/completions", of_prompt("The king"))["choices"][0]["text"],
              text["choices"][0]["text"]);
  }
}

TEST(EngineOpens, WhatElseNeedsTheModelStaysLoading) {
  HeldCloud held("demo");
  EdgeServer edge(held.arguments());
  edge.url();
  const auto code = [&](const char* path, json body, const json& more) {
    body.update(more);
    const http::Reply reply = edge.post(path, body);
    EXPECT_EQ(reply.status, 503) << reply.body;
    return json::parse(reply.body)["error"].value("code", "");
  };
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (edge.post("/v1/completions", of_prompt("The king")).status == 503 &&
         std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
  }
  const json ids = {{"prompt", {1, 2, 3}}};
  for (const json& more :
       {ids, json{{"logprobs", 1}}, json{{"n", 2}}, json{{"echo", true}},
        json{{"response_format", {{"type", "json_object"}}}}, json{{"logit_bias", {{"1", 1}}}}}) {
    EXPECT_EQ(code("/v1/completions", of_prompt("The king"), more), "loading") << more;
  }
  EXPECT_EQ(code("/v1/chat/completions", of_messages("x"), {{"logprobs", true}}), "loading");
  EXPECT_EQ(code("/v1/embeddings", {{"input", "x"}}, json::object()), "loading");
  EXPECT_EQ(code("/v1/responses", {{"input", "x"}}, json::object()), "loading");
  EXPECT_EQ(code("/tokenize", {{"content", "x"}}, json::object()), "loading");
  // The cloud's verdict on the words is the answer.
  json wrong = of_messages("x");
  wrong["messages"][0]["role"] = "king";
  EXPECT_EQ(edge.post("/v1/chat/completions", wrong).status, 400);
  json other = of_prompt("x");
  other["model"] = "gpt-4";
  EXPECT_EQ(edge.post("/v1/completions", other).status, 404);
  const std::string much = std::string(100000, 'x');
  const http::Reply refused = edge.post("/v1/completions", of_prompt(much));
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(json::parse(refused.body)["error"]["code"],
            json::parse(
                Client(held.cloud.url())
                    .request("POST", "/v1/completions", of_prompt(much).dump(), "application/json")
                    .body)["error"]["code"]);
}

struct Heard : edge::EngineObserver {
  void ended(const edge::Receipt& receipt, std::optional<double>) override { last = receipt; }
  std::optional<edge::Receipt> last;
};

// Texts on an engine whose model comes while they run.
TEST(EngineOpens, ATextGoesOnHereFromTheIdsThatCame) {
  for (const char* name : kModels) {
    for (const bool chat : {false, true}) {
      HeldCloud held(name);
      const json asked = chat ? of_messages("The king") : of_prompt("The king");
      const json alone =
          held.alone(chat ? "/v1/chat/completions" : "/v1/completions", asked)["choices"][0];
      edge::EngineOptions options;
      edge::PlacementRequest where;
      options.server = held.cloud.url();
      options.connector = InProcess::connect;
      options.cache = held.cache.path.string();
      where.many_texts = where.auto_cut = true;
      where.cut = edge::Cut::cloud();
      where.device.device = "cpu";
      Interrupt interrupt;
      Heard heard;
      {
        edge::Engine engine(options, where, {}, interrupt, heard);
        std::thread loads([&] { engine.load(); });
        while (engine.opens().empty()) std::this_thread::yield();
        {
          edge::EngineRequest request(engine);
          GenerateOptions how;
          how.max_tokens = 24;
          how.sampling.temperature = 0;
          split::Json words = parse_json(asked.dump(), 16, "the words");
          split::Json own = split::Json::object();
          own["special"] = !chat;
          own[chat ? "messages" : "prompt"] = words[chat ? "messages" : "prompt"];
          const auto text = request.begin_words(std::move(own), how);
          std::string said;
          int tokens = 0;
          const auto on_text = [&](std::string_view piece, const ScoredToken* token) {
            said += piece;
            if (token == nullptr || ++tokens != 3) return true;
            held.held = false;
            while (engine.loaded() == nullptr) std::this_thread::yield();
            return true;
          };
          while (text->next(on_text)) continue;
          EXPECT_EQ(to_valid_utf8(said),
                    (chat ? alone["message"]["content"] : alone["text"]).get<std::string>());
          EXPECT_EQ(text->take().tokens.size(), static_cast<size_t>(tokens));
          EXPECT_FALSE(text->prompt().empty());
          const edge::Receipt cost = request.counted();
          EXPECT_EQ(cost.tokens, static_cast<size_t>(tokens));
          EXPECT_EQ(cost.prompt_tokens, text->prompt().size());
          EXPECT_GE(cost.counts.trips, 2u) << "the cloud, and what is behind it";
        }
        ASSERT_TRUE(heard.last);
        EXPECT_EQ(heard.last->model, engine.opens());
        loads.join();
      }
    }
  }
}

// Counts texts that begin anew, for which the model then comes.
struct HeardAnew : edge::EngineObserver {
  explicit HeardAnew(HeldCloud& held) : held(held) {}
  void begins_anew() override {
    ++anew;
    held.held = false;
  }
  HeldCloud& held;
  int anew = 0;
};

TEST(EngineOpens, ATextThatTheCloudDoesNotBeginBeginsAnewFromItsIds) {
  HeldCloud held("demo");
  const json alone = held.alone("/v1/completions", of_prompt("The king"))["choices"][0];
  edge::EngineOptions options;
  edge::PlacementRequest where;
  options.server = held.cloud.url();
  options.connector = InProcess::connect;
  options.cache = held.cache.path.string();
  where.auto_cut = true;
  where.cut = edge::Cut::cloud();
  where.device.device = "cpu";
  Interrupt interrupt;
  HeardAnew heard(held);
  edge::Engine engine(options, where, {}, interrupt, heard);
  std::thread loads([&] { engine.load(); });
  while (engine.opens().empty()) std::this_thread::yield();
  GenerateOptions how;
  how.max_tokens = 24;
  how.sampling.temperature = 0;
  how.sampling.seed = 3;
  const split::Json words{{"prompt", "The king"}, {"special", true}, {"response_format", 7}};
  const auto read = [](std::string_view, const ScoredToken*) { return true; };
  {
    edge::EngineRequest request(engine);
    EXPECT_THROW(request.begin_words(words, how)->next(read), edge::RemoteError);
    EXPECT_EQ(heard.anew, 0) << "the cloud's error is the answer";
  }
  edge::EngineRequest request(engine);
  {
    const auto text = request.begin_words(words, how, true);
    while (text->next(read)) continue;
    EXPECT_EQ(to_valid_utf8(text->take().text), alone["text"]);
    EXPECT_FALSE(text->prompt().empty());
  }
  EXPECT_EQ(heard.anew, 1);
  loads.join();
}

}  // namespace
}  // namespace split::test
