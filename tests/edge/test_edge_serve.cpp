// edge_client --serve: OpenAI's routes on a model that is split, with the text of one machine,
// whatever happens to the cloud, the cut or the client.
#include <gtest/gtest.h>

#include "base/base64.h"
#include "run/text/generate.h"
#include "serve/api_keys.h"
#include "support/cloud_fixture.h"
#include "support/edge_server.h"
#include "support/http_peer.h"
#include "wire/codes.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

const char* const kCompletions = "/v1/completions";

// One cloud of a model and a cache for all tests.
struct Pair {
  static Pair& of(const std::string& name) {
    static std::map<std::string, ForAllTests<Pair>> all;
    Pair& one = all[name].get(name);
    one.cloud.reset({});
    return one;
  }
  explicit Pair(const std::string& name) : cloud(name), golden(name) {}

  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                             "--retry-for=5"});
    return more;
  }
  std::vector<int32_t> ids(int n) const { return golden.values<int32_t>(cat("p", n, ".ids")); }
  // The text that one machine alone writes.
  std::vector<int32_t> alone(std::span<const int32_t> prompt, double temperature, uint64_t seed,
                             int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.temperature = static_cast<float>(temperature);
    options.sampling.top_p = 1;  // OpenAI's default
    options.sampling.seed = seed;
    options.ignore_end = true;
    LocalForward forward(cloud.model().batcher());
    return generate(forward, cloud.model().config(), cloud.model().tokenizer(), prompt, options, {})
        .tokens;
  }

  GatedCloud cloud;
  Golden golden;
  TemporaryFolder cache;
};

Json body_of(const std::vector<int32_t>& prompt, double temperature, int seed, int tokens) {
  return {{"prompt", prompt},     {"temperature", temperature}, {"seed", seed},
          {"max_tokens", tokens}, {"ignore_eos", true},         {"return_token_ids", true}};
}

std::vector<int32_t> ids_in(const Json& answer) {
  return answer["choices"][0]["token_ids"].get<std::vector<int32_t>>();
}

TEST(EdgeServe, TextIsThatOfOneMachineForEveryCut) {
  Pair& pair = Pair::of("rand-a");
  const auto prompt = pair.ids(1);
  const auto expected = pair.alone(prompt, 0.9, 5, 12);
  for (const char* cut : {"0", "1", "3", "cloud"}) {
    for (const char* head : {"--head=edge", "--head=cloud"}) {
      EdgeServer edge(pair.arguments({cat("--cut=", cut), head}));
      const Json json = edge.ready().ask(kCompletions, body_of(prompt, 0.9, 5, 12));
      EXPECT_EQ(ids_in(json), expected) << cut << head;
      EXPECT_EQ(json["usage"]["prompt_tokens"], prompt.size());
      EXPECT_EQ(json["usage"]["completion_tokens"], 12);
      // The prompt's scores, which the cloud's completions do not give.
      Json scored = body_of(prompt, 0, 5, 1);
      scored["echo"] = true;
      scored["logprobs"] = 0;
      const Json lists = edge.ask(kCompletions, scored)["choices"][0]["logprobs"];
      EXPECT_EQ(lists["token_logprobs"].size(), prompt.size() + 1);
      const auto state = edge.ask("/v1/embeddings",
                                  {{"input", prompt}, {"normalize", false}})["data"][0]["embedding"]
                             .get<std::vector<float>>();
      EXPECT_LT(relative(state, pair.golden.values<float>("p1.embed_mean")), 2e-5) << cut << head;
      EXPECT_EQ(edge.stop(), 0);
    }
  }
}

// Rows in int8 that end here are told as a cloud tells them.
TEST(EdgeServe, RowsBeyondInt8AreAnOverflow) {
  const TemporaryFolder dir;
  std::filesystem::create_directory(dir.path / "large");
  cloud::write_large_model(dir.path / "large", 1e5f, 1e-3f, 0x1p58f);
  cloud::TestCloud cloud({(dir.path / "large").string()});
  for (const char* profile : {"int8", "f32"}) {
    EdgeServer edge({cat("--server=", cloud.url()), cat("--cache=", (dir.path / "cache").string()),
                     "--cut=0", cat("--profile=", profile)});
    const http::Reply reply =
        Client(edge.ready().url()).request("POST", kCompletions, body_of({1}, 0, 1, 2).dump());
    EXPECT_EQ(reply.status, profile == std::string_view("f32") ? 200 : 500) << reply.body;
    if (reply.status != 200) {
      EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "overflow") << reply.body;
    }
    EXPECT_EQ(edge.stop(), 0);
  }
}

// Fields that bend a draw come from the edge and from the cloud, which streams where no weights
// are: what was said counts alike.
TEST(EdgeServe, PenaltiesBiasesAndBestOfAreTheCloudsForEveryCut) {
  Pair& pair = Pair::of("rand-a");
  Json body = body_of(pair.ids(1), 0.9, 5, 24);
  body.update({{"presence_penalty", 0.7},
               {"frequency_penalty", 0.5},
               {"logit_bias", {{"3", 2.5}, {"7", -100}}},
               {"min_p", 0.01},
               {"user", "someone"},
               {"n", 2},
               {"best_of", 3}});
  const auto asked = [&](const std::string& url) {
    const http::Reply reply = Client(url).request("POST", kCompletions, body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body)["choices"];
  };
  const Json expected = asked(pair.cloud.url());
  Json plain = body_of(pair.ids(1), 0.9, 5, 24);
  EXPECT_NE(Json::parse(Client(pair.cloud.url())
                            .request("POST", kCompletions, plain.dump())
                            .body)["choices"][0]["token_ids"],
            expected[0]["token_ids"]);
  for (const char* cut : {"--cut=0", "--cut=1", "--cut=3", "--cut=cloud", "--cut=auto"}) {
    for (const char* drafts : {"--draft=off", "--draft=7"}) {
      EdgeServer edge(pair.arguments({cut, drafts}));
      edge.ready();
      EXPECT_EQ(asked(edge.url()), expected) << cut << drafts;
      EXPECT_EQ(edge.stop(), 0);
    }
  }
}

// A penalty on the last tokens goes to the cloud where that draws.
TEST(EdgeServe, RepeatPenaltyIsTheCloudsForEveryCut) {
  Pair& pair = Pair::of("demo");
  Json body = {{"prompt", "The king said"}, {"max_tokens", 60}, {"seed", 2}, {"temperature", 0.5}};
  const auto text = [&](const std::string& url, const Json& more) {
    Json asked = body;
    asked.update(more);
    const http::Reply reply = Client(url).request("POST", kCompletions, asked.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body)["choices"][0]["text"].get<std::string>();
  };
  const Json recent = {{"repeat_penalty", 1.6}, {"repeat_last_n", 8}};
  const std::string expected = text(pair.cloud.url(), recent);
  EXPECT_NE(expected, text(pair.cloud.url(), {{"repeat_penalty", 1.6}, {"repeat_last_n", 0}}));
  EXPECT_NE(expected, text(pair.cloud.url(), {{"repetition_penalty", 1.6}}));
  const Json options = {{"num_predict", 60}, {"seed", 2},  {"temperature", 0.5},
                        {"top_k", 0},        {"top_p", 1}, {"repeat_penalty", 1.6},
                        {"repeat_last_n", 8}};
  for (const char* cut : {"--cut=0", "--cut=3", "--cut=cloud", "--cut=auto"}) {
    EdgeServer edge(pair.arguments({cut}));
    EXPECT_EQ(text(edge.ready().url(), recent), expected) << cut;
    EXPECT_EQ(edge.ask("/api/generate", {{"model", "demo"},
                                         {"prompt", "The king said"},
                                         {"raw", true},
                                         {"stream", false},
                                         {"options", options}})["response"],
              expected)
        << cut;
  }
}

// 30 seeds: each text parses, has its members in the schema's order, and is the same from the cloud
// and at every cut.
TEST(EdgeServe, AnswersOfASchemaAreTheCloudsForEveryCut) {
  Pair& pair = Pair::of("demo");
  Json body = Json::parse(R"({"prompt":"The king said:","max_tokens":100,"temperature":1,
      "top_p":1,"n":15,"response_format":{"type":"json_schema","json_schema":{"name":"x",
      "strict":true}}})");
  // Compared as text, since this test's JSON sorts members.
  body["response_format"]["json_schema"]["schema"] =
      R"({"type":"object","properties":{"who":{"enum":["king","queen"]},
          "age":{"type":"integer"},"of":{"type":"array","maxItems":2,
          "items":{"type":"string","maxLength":4}}},"required":["who","age","of"]})";
  const auto texts = [&](const std::string& url, const char* path = kCompletions) {
    const http::Reply reply = Client(url).request("POST", path, body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    const Json answer = Json::parse(reply.body);
    std::vector<std::string> all;
    for (const Json& choice : answer["choices"]) {
      EXPECT_EQ(choice["finish_reason"], "stop") << choice;
      all.push_back(choice.contains("text") ? choice["text"] : choice["message"]["content"]);
    }
    return all;
  };
  std::vector<std::string> expected;
  for (const int seed : {16, 1}) {
    body["seed"] = seed;
    expected = texts(pair.cloud.url());
    ASSERT_EQ(expected.size(), 15u);
    for (const std::string& text : expected) {
      const Json one = Json::parse(text, nullptr, false);
      ASSERT_TRUE(one.is_object()) << text;
      EXPECT_TRUE(one["who"] == "king" || one["who"] == "queen") << text;
      EXPECT_TRUE(one["age"].is_number_integer() && one["of"].size() <= 2) << text;
      EXPECT_LT(text.find("\"who\""), text.find("\"age\"")) << text;
    }
  }
  body["n"] = 2;
  expected.resize(2);
  for (const char* cut : {"--cut=0", "--cut=3", "--cut=cloud", "--cut=auto"}) {
    for (const char* drafts : {"--draft=off", "--draft=7"}) {
      EdgeServer edge(pair.arguments({cut, drafts}));
      edge.ready();
      EXPECT_EQ(texts(edge.url()), expected) << cut << drafts;
    }
  }
  EdgeServer edge(pair.arguments({"--cut=0"}));
  edge.ready();
  body.erase("prompt");
  body["messages"] = Json::parse(R"([{"role":"user","content":"Who are you?"}])");
  for (const std::string& text : texts(edge.url(), "/v1/chat/completions")) {
    EXPECT_TRUE(Json::parse(text, nullptr, false).is_object()) << text;
  }
  body["response_format"]["json_schema"]["schema"] = {{"type", "integer"}, {"minimum", "1"}};
  const http::Reply refused = edge.post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("minimum"), std::string::npos) << refused.body;
}

// Both programs name what they do not hold of a schema, on each route, whole and as a stream.
TEST(EdgeServe, SaysWhatOfASchemaIsNotHeld) {
  Pair& pair = Pair::of("demo");
  EdgeServer edge(pair.arguments({"--cut=3"}));
  const std::string url = edge.ready().url();
  const Json schema = {{"type", "object"},
                       {"properties",
                        {{"mail", {{"type", "string"}, {"format", "uri"}, {"pattern", "(?=.)@"}}},
                         {"n", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
                       {"required", {"mail", "n"}}};
  const Json named = {{"name", "x"}, {"strict", true}, {"schema", schema}};
  const Json format = {{"type", "json_schema"}, {"json_schema", named}};
  Json text = named;
  text["type"] = "json_schema";
  const Json hi = {{{"role", "user"}, {"content", "hi"}}};
  const Json options = {{"num_predict", 200}, {"seed", 1}};
  const std::pair<const char*, Json> asks[] = {
      {kCompletions, {{"prompt", "a"}, {"response_format", format}}},
      {"/v1/chat/completions", {{"messages", hi}, {"response_format", format}}},
      {"/v1/responses", {{"input", "hi"}, {"text", {{"format", text}}}}},
      {"/api/generate",
       {{"model", "demo"}, {"prompt", "a"}, {"format", schema}, {"options", options}}},
      {"/api/chat",
       {{"model", "demo"}, {"messages", hi}, {"format", schema}, {"options", options}}}};
  testing::internal::CaptureStderr();
  for (const std::string& at : {url, pair.cloud.url()}) {
    for (auto [path, body] : asks) {
      const bool both = std::string_view(path).find("ompletions") != std::string_view::npos;
      if (at != url && !both) continue;
      for (const bool stream : {false, true}) {
        body["stream"] = stream;
        const http::Reply reply = Client(at).request("POST", path, body.dump());
        ASSERT_EQ(reply.status, 200) << path << reply.body;
        EXPECT_EQ(reply.headers.get("Split-Schema-Loosened"), "format, pattern") << path << stream;
      }
    }
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("not held of a schema: format, pattern\n"),
            std::string::npos);
  Json body = asks[0].second;
  body["seed"] = 4;
  body["response_format"]["json_schema"]["schema"]["properties"].erase("mail");
  body["response_format"]["json_schema"]["schema"]["required"] = {"n"};
  const http::Reply held = edge.post(kCompletions, body);
  EXPECT_FALSE(held.headers.get("Split-Schema-Loosened"));
  const Json made = Json::parse(Json::parse(held.body)["choices"][0]["text"].get<std::string>());
  EXPECT_TRUE(made["n"] >= 1 && made["n"] <= 9) << made;
}

TEST(EdgeServe, AnswersCarryTheirReceipt) {
  Pair& pair = Pair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2", "--draft=off"}));
  const auto prompt = pair.ids(0);
  Json body = body_of(prompt, 0, 1, 8);
  const http::Reply reply = edge.ready().post(kCompletions, body);
  const Json receipt = Json::parse(reply.body)["usage"]["splitcompute"];
  EXPECT_EQ(receipt["cut"], 2);
  EXPECT_TRUE(receipt["device"].get<std::string>().starts_with("cpu (1 thread"));
  EXPECT_EQ(receipt["cloud_layer_rows"], 2 * (prompt.size() + 7));
  EXPECT_EQ(receipt["steps"], 8);
  EXPECT_GT(receipt["bytes_up"], 0);
  EXPECT_GT(receipt["bytes_down"].get<size_t>(), (prompt.size() + 7) * 96 * sizeof(float));
  EXPECT_GT(receipt["bytes_downloaded"].get<size_t>() + receipt["bytes_from_cache"].get<size_t>(),
            0u);
  for (const char* time : {"cloud_ms", "wire_ms", "edge_ms", "time_to_first_token_ms"}) {
    EXPECT_GT(receipt[time], 0) << time;
  }
  const std::string timing(reply.headers.get("Server-Timing").value_or(""));
  for (const char* part : {"cut;desc=\"2\"", "device;desc=\"cpu (1 thread",
                           "cloud;dur=", "wire;dur=", "edge;dur=", "first_token;dur="}) {
    EXPECT_NE(timing.find(part), std::string::npos) << timing;
  }
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const http::Reply streamed = edge.post(kCompletions, body);
  const auto events = events_of(streamed.body);
  ASSERT_GE(events.size(), 3u) << streamed.body;
  EXPECT_EQ(events.back(), "[DONE]");
  const Json usage = Json::parse(events[events.size() - 2])["usage"];
  EXPECT_EQ(usage["splitcompute"]["cloud_layer_rows"], 2 * (prompt.size() + 7));
  EXPECT_TRUE(streamed.headers.get("Server-Timing").value_or("").starts_with("cut;desc=\"2\""));
  EXPECT_EQ(edge.status()["last"]["cut"], 2);
}

TEST(EdgeServe, ManyAnswersAtOnceAreEachThatOfOne) {
  Pair& pair = Pair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=1"}));
  edge.ready();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const auto prompt = pair.ids(i % 2);
      for (int round = 0; round < 2; ++round) {
        const int seed = 10 * i + round;
        const Json got = edge.ask(kCompletions, body_of(prompt, 0.9, seed, 10));
        EXPECT_EQ(ids_in(got), pair.alone(prompt, 0.9, static_cast<uint64_t>(seed), 10)) << i;
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(EdgeServe, TextIsTheSameWhenTheCloudFailsOrTheCutMoves) {
  Pair& pair = Pair::of("rand-a");
  const auto prompt = pair.ids(1);
  const auto expected = pair.alone(prompt, 0.9, 5, 12);
  EdgeServer edge(pair.arguments({"--cut=2", "--draft=off"}));
  edge.ready();
  for (const int failing : {0, 1, 5}) {
    pair.cloud.reset([&](const http::Request& request, int n) -> std::optional<http::Response> {
      if (n != failing) return std::nullopt;
      pair.cloud.cloud.sessions.remove(request.path_params[0]);
      return cut_short();
    });
    EXPECT_EQ(ids_in(edge.ask(kCompletions, body_of(prompt, 0.9, 5, 12))), expected) << failing;
  }
  std::atomic<int> moved{0};
  pair.cloud.reset([&](const http::Request&, int n) -> std::optional<http::Response> {
    // In the middle of an answer, which ends on the old cut.
    if (n == 4) moved = edge.send("PUT", "/split/cut", {{"cut", 1}}).status;
    return std::nullopt;
  });
  const Json json = edge.ask(kCompletions, body_of(prompt, 0.9, 5, 12));
  EXPECT_EQ(ids_in(json), expected);
  EXPECT_EQ(json["usage"]["splitcompute"]["cut"], 2);
  EXPECT_EQ(moved, 200);
  for (const Json& cut : {Json(1), Json("cloud"), Json(0), Json(3)}) {
    const http::Reply reply = edge.send("PUT", "/split/cut", {{"cut", cut}});
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json status = Json::parse(reply.body);
    EXPECT_EQ(status["cut"], cut);
    for (const Json& stage : status["stages"]) {
      EXPECT_EQ(stage["state"], "ready") << stage;
      const bool here = stage["where"] == "edge";
      EXPECT_EQ(stage["bytes_done"], here ? stage["bytes"] : Json(0)) << stage;
    }
    const Json again = edge.ask(kCompletions, body_of(prompt, 0.9, 5, 12));
    EXPECT_EQ(ids_in(again), expected) << cut;
    EXPECT_EQ(again["usage"]["splitcompute"]["cut"], cut);
  }
  EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 4}}).status, 400);
  EXPECT_EQ(edge.send("PUT", "/split/cut", Json::object()).status, 400);
}

// The cloud's model was replaced under its name: a cut is not moved to weights of both.
TEST(EdgeServe, AReplacedModelIsNotMixedWithTheOneThatIsHere) {
  Pair& pair = Pair::of("rand-a");
  const auto prompt = pair.ids(1);
  const auto expected = pair.alone(prompt, 0.9, 5, 12);
  EdgeServer edge(pair.arguments({"--cut=2", "--draft=off"}));
  edge.ready();
  const auto with = [&](const std::function<void(Json&)>& edit) {
    pair.cloud.reset({}, {}, [&pair, edit](const http::Request& request, int) {
      http::Response response = pair.cloud.real(request);
      Json json = Json::parse(response.body);
      edit(json);
      response.body = json.dump();
      return std::optional(response);
    });
  };
  const auto put = [&](const Json& cut) { return edge.send("PUT", "/split/cut", {{"cut", cut}}); };
  // Other words, and other weights.
  const std::function<void(Json&)> edits[] = {
      [](Json& json) { json["files"].back()["sha256"] = std::string(64, 'a'); },
      [](Json& json) {
        Json& blob = json["stages"][0]["blobs"][0];
        blob["sha256"] = std::string(64, 'a');
        blob["chunks"] = {blob["sha256"]};
      }};
  for (const auto& edit : edits) {
    with(edit);
    for (const Json& cut : {Json(1), Json("cloud")}) {
      const http::Reply reply = put(cut);
      EXPECT_EQ(reply.status, 409) << reply.body;
      EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "model_mismatch");
      EXPECT_NE(reply.body.find("the cloud has another model under this name now"),
                std::string::npos)
          << reply.body;
      EXPECT_EQ(edge.status()["cut"], 2);
    }
  }
  pair.cloud.reset({});
  EXPECT_EQ(put(1).status, 200);
  EXPECT_EQ(ids_in(edge.ask(kCompletions, body_of(prompt, 0.9, 5, 12))), expected);
}

// The client leaves while the cloud is silent: its session there ends at once, and with it all that
// the answer held.
TEST(EdgeServe, AClientThatGoesAwayFreesItsStep) {
  Pair& pair = Pair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2", "--kv-budget=1"}));  // one whole context
  const int port = edge.ready().port();
  const std::vector<int32_t> prompt(40, 3);
  for (const bool stream : {true, false}) {
    std::atomic<bool> waits{false}, go{false};
    pair.cloud.reset([&](const http::Request&, int n) -> std::optional<http::Response> {
      if (n == 2) {
        waits = true;
        while (!go) std::this_thread::yield();
      }
      return std::nullopt;
    });
    Json body = body_of(prompt, 0, 1, 24);
    body["stream"] = stream;
    http::Peer peer(port);
    peer.say(cat("POST ", kCompletions, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ",
                 body.dump().size(), "\r\n\r\n", body.dump()));
    while (!waits) std::this_thread::yield();
    EXPECT_EQ(pair.cloud.cloud.sessions.size(), 1u);
    peer.close();
    while (pair.cloud.cloud.sessions.size() > 0) std::this_thread::yield();  // or for ever
    // Pages for another whole context are there again, while the first step still waits.
    int status = 503;
    while (status == 503) status = edge.post(kCompletions, body_of(prompt, 0, 1, 24)).status;
    EXPECT_EQ(status, 200);
    go = true;
    pair.cloud.reset({});
  }
}

TEST(EdgeServe, StatesAreTheGoldensInEveryShape) {
  Pair& pair = Pair::of("demo");
  EdgeServer edge(pair.arguments());
  const auto values = [&](Json body) {
    const Json json = edge.ready().ask("/v1/embeddings", body);
    EXPECT_EQ(json["object"], "list");
    EXPECT_EQ(json["model"], "demo");
    std::vector<Json> all;
    for (const Json& item : json["data"]) {
      EXPECT_EQ(item["index"], all.size());
      all.push_back(item["embedding"]);
    }
    return all;
  };
  const auto expected = pair.golden.values<float>("p0.embed_mean");
  const auto raw = values({{"input", pair.ids(0)}, {"normalize", false}});
  ASSERT_EQ(raw.size(), 1u);
  EXPECT_LT(relative(raw[0].get<std::vector<float>>(), expected), 2e-5);
  const auto unit = values({{"input", {pair.ids(0), pair.ids(1)}}, {"model", "demo"}});
  ASSERT_EQ(unit.size(), 2u);
  double length = 0;
  for (const float x : unit[0].get<std::vector<float>>()) length += double{x} * double{x};
  EXPECT_NEAR(length, 1, 1e-5);
  const auto one = values({{"input", "Once upon a time"}});
  const auto several = values({{"input", {"Once upon a time", "The king"}}});
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(one[0], several[0]);
  const std::string coded =
      values({{"input", "Once upon a time"}, {"encoding_format", "base64"}})[0];
  std::string encoded;
  Base64 base64(encoded);
  const auto floats = one[0].get<std::vector<float>>();
  base64.add(std::as_bytes(std::span(floats)));
  base64.finish();
  EXPECT_EQ(coded, encoded);
  for (const Json& body : {Json{{"input", ""}}, Json{{"input", Json::array()}}, Json::object(),
                           Json{{"input", "a"}, {"encoding_format", "int8"}},
                           Json{{"input", std::vector<int32_t>(513, 1)}}}) {
    EXPECT_EQ(edge.post("/v1/embeddings", body).status, 400) << body;
  }
}

TEST(EdgeServe, AChatIsACompletionOfItsTemplate) {
  Pair& pair = Pair::of("demo");
  EdgeServer edge(pair.arguments(
      {"--chat-template={% for m in messages %}{{ '<' + m.role + '> ' + m.content + '\\n\\n' }}{% "
       "endfor %}{{ '<assistant>' }}"}));
  const Json messages = {
      {{"role", "system"}, {"content", "Tell a story."}},
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Once upon a time"}}}}}};
  const Json sampling = {{"seed", 3}, {"max_tokens", 24}};
  Json plain = sampling, chat = sampling;
  plain["prompt"] = "<system> Tell a story.\n\n<user> Once upon a time\n\n<assistant>";
  chat["messages"] = messages;
  const std::string text = edge.ready().ask(kCompletions, plain)["choices"][0]["text"];
  const Json json = edge.ask("/v1/chat/completions", chat);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], text);
  EXPECT_TRUE(json["usage"].contains("splitcompute"));

  chat["stream"] = true;
  const auto events = events_of(edge.post("/v1/chat/completions", chat).body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["delta"],
            (Json{{"role", "assistant"}, {"content", ""}}));
  std::string streamed;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    streamed += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, text);

  chat["stream"] = false;
  chat["logprobs"] = true;
  chat["top_logprobs"] = 2;
  const Json logprobs = edge.ask("/v1/chat/completions", chat)["choices"][0]["logprobs"]["content"];
  ASSERT_GT(logprobs.size(), 0u);
  EXPECT_EQ(logprobs[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(logprobs[0]["bytes"].size(), logprobs[0]["token"].get<std::string>().size());
  for (const Json& wrong :
       {Json{{"messages", Json::array()}}, Json{{"messages", "hi"}}, Json::object(),
        Json{{"messages", {{{"role", "judge"}, {"content", "x"}}}}},
        Json{{"messages", messages}, {"tools", 1}},
        Json{{"messages", messages}, {"top_logprobs", 2}}}) {
    EXPECT_EQ(edge.post("/v1/chat/completions", wrong).status, 400) << wrong;
  }
}

// A chat of two turns, the second of which has the first one's words.
TEST(EdgeServe, AChatsNextTurnGoesOnFromItsOwnRows) {
  Pair& pair = Pair::of("demo");
  EdgeServer edge(pair.arguments(
      {"--cut=4", "--draft=off",
       "--chat-template={% for m in messages %}{{ '<' + m.role + '> ' + m.content + '\\n\\n' }}{% "
       "endfor %}{{ '<assistant> ' }}"}));
  edge.ready();
  Json chat = {{"messages", {{{"role", "user"}, {"content", "Once upon a time in a small town"}}}},
               {"temperature", 0},
               {"max_tokens", 16},
               {"ignore_eos", true}};
  Client client(edge.url());
  const auto ask = [&](const char* key) {
    const http::Reply reply = client.request("POST", "/v1/chat/completions", chat.dump(),
                                             "application/json", {{"Authorization", key}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  };
  const auto words = [](const Json& answer) {
    return answer["choices"][0]["message"]["content"].get<std::string>();
  };
  const auto cost = [](const Json& answer, const char* name) {
    return answer["usage"]["splitcompute"][name].get<uint64_t>();
  };
  const Json first = ask("Bearer me");
  EXPECT_EQ(cost(first, "kept_rows"), 0u);
  chat["messages"].push_back({{"role", "assistant"}, {"content", words(first)}});
  chat["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const Json second = ask("Bearer me"), other = ask("Bearer you");
  EXPECT_EQ(words(second), words(other));
  EXPECT_EQ(cost(other, "kept_rows"), 0u) << "rows of another key";
  const uint64_t kept = cost(second, "kept_rows");
  EXPECT_GE(kept, first["usage"]["prompt_tokens"].get<uint64_t>());
  // Four of eight blocks, and a row of 320 floats for each that is new.
  EXPECT_EQ(cost(other, "cloud_layer_rows") - cost(second, "cloud_layer_rows"), 4 * kept);
  EXPECT_NEAR(static_cast<double>(cost(other, "bytes_down") - cost(second, "bytes_down")),
              static_cast<double>(kept * 320 * 4), 16);
  EXPECT_LT(cost(second, "bytes_up"), cost(other, "bytes_up"));
  // Another cut has other rows.
  ASSERT_EQ(edge.send("PUT", "/split/cut", {{"cut", 6}}).status, 200);
  const Json moved = ask("Bearer me");
  EXPECT_EQ(cost(moved, "kept_rows"), 0u);
  EXPECT_EQ(words(moved), words(second));
}

// The cloud's keys may have few sessions.
TEST(EdgeServe, ATextThatGetsNoSessionHasThatOfAKeptOne) {
  cloud::Cloud cloud;
  cloud::ModelOptions options;
  options.id = "rand-a";
  options.path = model_dir("rand-a");
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 16 << 20;
  cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
  cloud.keys = serve::ApiKeys::parse("ann:0123456789abcdef sessions=1\n", "keys");
  cloud.ready = true;
  Running running([&](http::Server& server) { cloud::add_routes(server, cloud); });
  const TemporaryFolder cache;
  EdgeServer edge({cat("--server=", running.url()), cat("--cache=", cache.path.string()),
                   "--api-key=0123456789abcdef", "--cut=1", "--retry-for=0"});
  edge.ready();
  for (const int32_t first : {1, 2, 2}) {
    std::vector<int32_t> ids(20, 7);
    ids[0] = first;
    const http::Reply reply = edge.post(kCompletions, body_of(ids, 0, 1, 4));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(cloud.sessions.size(), 1u);
  }
  edge.stop();
  EXPECT_EQ(cloud.sessions.size(), 0u) << "it is ended with the program";
}

TEST(EdgeServe, IsReadyOnceItIsLoaded) {
  Pair& pair = Pair::of("rand-a");
  HeldManifests held(pair.cloud);
  EdgeServer edge(pair.arguments());
  EXPECT_EQ(edge.get("/livez").status, 200);
  EXPECT_EQ(edge.get("/readyz").status, 503);
  EXPECT_EQ(edge.status()["state"], "loading");
  const http::Reply early = edge.post(kCompletions, {{"prompt", {1}}});  // words may be answered
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(Json::parse(early.body)["error"]["code"], "loading");
  held.let_go();
  EXPECT_EQ(edge.ready().get("/readyz").status, 200);
  EXPECT_EQ(Json::parse(edge.get("/v1/models").body)["data"][0]["id"], "rand-a");
  EXPECT_EQ(edge.get("/v1/models/rand-a").status, 200);
  EXPECT_EQ(edge.get("/v1/models/gpt-4").status, 404);
  EXPECT_EQ(edge.stop(SIGINT), 130);
}

TEST(EdgeServe, SaysWhatIsWrong) {
  Pair& pair = Pair::of("rand-a");
  auto arguments = pair.arguments({"--cut=1"});
  arguments.back() = "--retry-for=0";
  EdgeServer edge(arguments);
  const auto error_of = [&](const Json& body) {
    const http::Reply reply = edge.ready().post(kCompletions, body);
    Json error = Json::parse(reply.body)["error"];
    error["status"] = reply.status;
    return error;
  };
  Json body = body_of(pair.ids(0), 0, 1, 4);
  body["model"] = "gpt-4";
  EXPECT_EQ(error_of(body)["code"], "model_not_found");
  body = body_of(std::vector<int32_t>(65, 1), 0, 1, 4);
  EXPECT_EQ(error_of(body)["param"], "prompt");
  body = body_of(pair.ids(0), 0, 1, 4);
  body["temperature"] = -1;
  EXPECT_EQ(error_of(body)["status"], 400);
  pair.cloud.reset([](const http::Request&, int n) -> std::optional<http::Response> {
    if (n < 1) return std::nullopt;
    throw http::HttpError(503, wire::codes::kBusy, "come back");
  });
  body = body_of(pair.ids(0), 0, 1, 4);
  body["stream"] = true;
  const auto events = events_of(edge.post(kCompletions, body).body);
  const Json last = Json::parse(events.back());
  EXPECT_EQ(last["error"]["code"], "cloud_unavailable") << events.back();
  EXPECT_NE(last["error"]["message"].get<std::string>().find("come back"), std::string::npos);
  EXPECT_GE(events.size(), 2u);
  EXPECT_EQ(error_of(body_of(pair.ids(0), 0, 1, 4))["status"], 503);
}

// A page from elsewhere, in a browser on this machine.
TEST(EdgeServe, AnswersNobodyFromElsewhere) {
  Pair& pair = Pair::of("rand-a");
  EdgeServer edge(pair.arguments());
  const auto status = [&](const http::Headers& headers) {
    return Client(edge.ready().url()).request("GET", "/v1/models", {}, {}, headers).status;
  };
  EXPECT_EQ(status({}), 200);
  EXPECT_EQ(status({{"Origin", "http://localhost:3000"}}), 200);
  for (const char* origin : {"https://evil.example", "http://localhost.evil.example", "null"}) {
    EXPECT_EQ(status({{"Origin", origin}}), 403) << origin;
  }
  for (const auto& [host, code] : {std::pair("evil.example", "403"),
                                   {"localhost.evil.example:80", "403"},
                                   {"[::1]:80", "200"},
                                   {"127.0.0.1.evil.example", "403"},
                                   {"localhost:80", "200"},
                                   {"127.1.2.3", "200"}}) {
    http::Peer peer(edge.port());
    peer.say(cat("GET /v1/models HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
    EXPECT_EQ(peer.until("\r\n").substr(9, 3), code) << host;
  }
}

TEST(EdgeServe, RefusesWhatCannotBeServed) {
  Pair& pair = Pair::of("rand-a");
  EdgeServer first(pair.arguments());
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{cat("--serve=", first.port())}, 98, "in use"},
      {{"--serve", "--prompt=x"}, 2, "--serve"},
      {{"--serve", "nowhere"}, 2, "expected HOST:PORT"},
      {{"--serve=0.0.0.0:0"}, 2, "--insecure"},
      {{"--serve=127.0.0.1:0", "--chat-template={content}"}, 2, "--chat-template"},
      {{"--serve=127.0.0.1:0", "--model=nope"}, 3, "has no model 'nope'"},
  };
  for (const auto& [more, code, text] : cases) {
    const Outcome got = run_edge(pair.arguments(more));
    EXPECT_EQ(got.code, code) << got.err;
    EXPECT_NE(got.err.find(text), std::string::npos) << got.err;
  }
}

}  // namespace
}  // namespace split::test
