// The routes that clients of other servers ask of the edge: llama-server's, Ollama's, OpenAI's
// responses; and pages from elsewhere. Texts are those of the routes that they stand on.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/cloud_fixture.h"
#include "support/edge_server.h"
#include "support/http_peer.h"
#include "wire/codes.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

Json with(Json body, const Json& more) {
  body.update(more);
  return body;
}

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
  Demo() : edge_(arguments({"--cut=6"})) { edge_.ready(); }  // some blocks here, some there

 private:
  EdgeServer edge_;
};

TEST(EdgeRoutes, HealthAndPropsAreLlamaServers) {
  Pair pair("rand-a");
  HeldManifests held(pair.cloud);
  EdgeServer edge(pair.arguments({"--chat-template={{ messages[0].content }}"}));
  for (const auto& [path, code] : {std::pair("/health", "not_ready"), {"/props", "loading"}}) {
    const http::Reply early = edge.get(path);
    EXPECT_EQ(early.status, 503) << path;
    EXPECT_EQ(Json::parse(early.body)["error"]["code"], code);
  }
  held.let_go();
  EXPECT_EQ(Json::parse(edge.ready().get("/health").body), (Json{{"status", "ok"}}));
  const Json props = Json::parse(edge.get("/props").body);
  EXPECT_EQ(props["model_alias"], "rand-a");
  EXPECT_EQ(props["n_ctx"], 64);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 64);
  EXPECT_EQ(props["total_slots"], 16);
  EXPECT_EQ(props["chat_template"], "{{ messages[0].content }}");
  const Json described = Json::parse(edge.get("/v1/models/rand-a").body);
  EXPECT_EQ(described["chat"]["template"], "given");
  EXPECT_EQ(described["chat"]["calls"], "prompted");
  EXPECT_EQ(described["chat"]["reasoning"], false);
}

TEST(EdgeRoutes, AModelIsDescribedByHowItAnswersAChatAsOnTheCloud) {
  Pair pair("models/qwen3");
  EdgeServer edge(pair.arguments({}));
  const Json here = Json::parse(edge.ready().get("/v1/models/qwen3").body);
  const Json there = Json::parse(Client(pair.cloud.url()).request("GET", "/v1/models/qwen3").body);
  EXPECT_TRUE(here["chat"].is_object());
  EXPECT_EQ(here["chat"], there["chat"]);
}

TEST(EdgeRoutes, TheCloudAloneAnswersAChatWithTheSameWords) {
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
                     {"max_tokens", 12},
                     {"seed", 4}};
  const Json split = Demo::edge().ask("/v1/chat/completions", chat);
  const Json whole = Demo::edge().ask("/split/unsplit/chat", chat);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], split["choices"][0]["message"]["content"]);
  EXPECT_NE(split["usage"]["splitcompute"]["cut"], "cloud");
  EXPECT_EQ(whole["usage"]["splitcompute"]["cut"], "cloud");
}

TEST(EdgeRoutes, AWrongModelIsToldTheRightOne) {
  for (const auto& [path, field, value] :
       {std::tuple("/v1/completions", "prompt", Json("x")),
        {"/split/unsplit", "prompt", Json("x")},
        {"/split/unsplit/chat", "messages", Json{{{"role", "user"}, {"content", "x"}}}},
        {"/v1/chat/completions", "messages", Json{{{"role", "user"}, {"content", "x"}}}},
        {"/v1/embeddings", "input", Json("x")}}) {
    const http::Reply reply = Demo::edge().post(path, {{"model", "gpt-4"}, {field, value}});
    EXPECT_EQ(reply.status, 404) << path;
    const Json error = Json::parse(reply.body)["error"];
    EXPECT_EQ(error["message"],
              "no model of this id: expected demo; edge_client --serve --any-model answers for any "
              "name")
        << path;
    EXPECT_EQ(error["code"], "model_not_found");
  }
}

TEST(EdgeRoutes, AnyModelsNameIsAnsweredByTheOneThatIsThere) {
  Pair pair("demo");
  EdgeServer edge(pair.arguments({"--cut=2", "--any-model"}));
  edge.ready();
  const Json hi = {{{"role", "user"}, {"content", "hi"}}}, few = {{"num_predict", 2}};
  const std::pair<const char*, Json> asks[] = {
      {"/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}}},
      {"/v1/chat/completions", {{"messages", hi}, {"max_tokens", 2}}},
      {"/v1/responses", {{"input", "hi"}, {"max_output_tokens", 2}}},
      {"/v1/messages", {{"messages", hi}, {"max_tokens", 2}}},
      {"/v1/embeddings", {{"input", "hi"}}},
      {"/api/generate", {{"prompt", "a"}, {"options", few}, {"stream", false}}},
      {"/api/generate", {{"prompt", ""}}},
      {"/api/chat", {{"messages", hi}, {"options", few}, {"stream", false}}},
      {"/api/embed", {{"input", "hi"}}}};
  for (const auto& [path, body] : asks) {
    for (const char* name : {"gpt-4o", "claude-haiku-4-5", "demo"}) {
      EXPECT_EQ(edge.ask(path, with(body, {{"model", name}}))["model"], "demo") << path << name;
    }
  }
  EXPECT_EQ(edge.ask("/api/show", {{"model", "gpt-4o:latest"}})["modelfile"], "FROM demo\n");
  EXPECT_EQ(edge.ask("/api/generate", {{"model", "demo:latest"}})["model"], "demo:latest");
  EXPECT_EQ(Json::parse(edge.get("/v1/models").body)["data"].size(), 1u);
  // Each name is told once.
  const std::string said = edge.until("ready\n");
  for (const std::string name : {"gpt-4o", "claude-haiku-4-5"}) {
    const std::string line =
        cat("no model '", name, "' is here: demo answers for it (--any-model)\n");
    const size_t at = said.find(line);
    ASSERT_NE(at, said.npos) << said;
    EXPECT_EQ(said.find(line, at + 1), said.npos) << said;
  }
}

TEST(EdgeRoutes, AnyModelsNameNeedsOneModel) {
  cloud::TestCloud cloud({"rand-a", "rand-b"});
  TemporaryFolder cache;
  const std::vector<std::string> common = {cat("--server=", cloud.here()), "--any-model",
                                           cat("--cache=", cache.path.string())};
  EdgeServer several(common);
  EXPECT_EQ(several.ended(), 2);
  EXPECT_NE(several.until("").find("--any-model: expected --model beside it: the server has "
                                   "'rand-a', 'rand-b'"),
            std::string::npos);
  EdgeServer tail({cat("--server=", cloud.here()), "--any-model", "--tail=mine.safetensors"});
  EXPECT_EQ(tail.ended(), 2);
  EXPECT_NE(tail.until("").find("--any-model: expected no --tail"), std::string::npos);
  std::vector<std::string> named = common;
  named.emplace_back("--model=rand-b");
  EdgeServer one(named);
  const Json answer = one.ready().ask("/v1/completions",
                                      {{"model", "gpt-4o"}, {"prompt", {1, 2}}, {"max_tokens", 2}});
  EXPECT_EQ(answer["model"], "rand-b");
}

// A model that was made for many positions: an agent's first prompt fits without a flag, as far as
// there is room.
TEST(EdgeRoutes, AContextIsWhatTheModelWasMadeForAsFarAsThereIsRoom) {
  TemporaryFolder models, cache;
  const std::filesystem::path dir = models.path / "long";
  std::filesystem::copy(model_dir("models/qwen3"), dir, std::filesystem::copy_options::recursive);
  Json config = Json::parse(read_file(dir / "config.json", 1 << 20));
  config["max_position_embeddings"] = 131072;
  std::ofstream(dir / "config.json") << config.dump();
  const auto context = [&](const cloud::TestCloud& cloud, const char* more, std::string* said) {
    EdgeServer edge(
        {cat("--server=", cloud.here()), cat("--cache=", cache.path.string()), "--cut=1", more});
    const int context = Json::parse(edge.ready().get("/props").body)["n_ctx"];
    *said = edge.until("ready\n");
    return context;
  };
  std::string said;
  const cloud::TestCloud cloud({dir.string()}, 256 << 20);
  EXPECT_EQ(cloud.config().context, 32768);
  EXPECT_EQ(cloud.cloud.models[0]->context_bound(), "");
  EXPECT_EQ(context(cloud, "--seed=1", &said), 32768);
  EXPECT_EQ(said.find("context "), said.npos) << said;
  EXPECT_EQ(context(cloud, "--context=1000", &said), 1000);
  const uint64_t page = kv_bytes_for(cloud.cloud.models[0]->model(), {}, Profile::kF32, 1) / 2048;
  EXPECT_EQ(context(cloud, cat("--kv-budget=", 500 * page).c_str(), &said), 8000);
  EXPECT_NE(said.find("context 8000 of the 131072 that the model was made for: --kv-budget, "),
            said.npos)
      << said;
  const cloud::TestCloud less({dir.string()}, 600 * page);
  EXPECT_EQ(less.config().context, 9600);
  EXPECT_TRUE(less.cloud.models[0]->context_bound().starts_with(
      "context 9600 of the 131072 that the model was made for: --kv-budget, "))
      << less.cloud.models[0]->context_bound();
  EXPECT_EQ(context(less, "--seed=1", &said), 9600);
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

// --- Ollama

std::vector<Json> lines_of(const http::Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  std::vector<Json> lines;
  std::istringstream in(reply.body);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

const Json kOptions = {{"seed", 5},        {"num_predict", 12}, {"temperature", 0.7},
                       {"top_k", 50},      {"top_p", 0.95},     {"repeat_penalty", 1.05},
                       {"num_ctx", 65536}, {"num_gpu", 99},     {"stop", {"zzz"}}};
const Json kSampling = {{"seed", 5},      {"max_tokens", 12}, {"temperature", 0.7},
                        {"top_k", 50},    {"top_p", 0.95},    {"repeat_penalty", 1.05},
                        {"stop", {"zzz"}}};

TEST(EdgeOllama, GenerateIsACompletion) {
  EdgeServer& edge = Demo::edge();
  const Json completion =
      edge.ask("/v1/completions", with(kSampling, {{"prompt", "Once upon a time"}}));
  const std::string text = completion["choices"][0]["text"];
  ASSERT_FALSE(text.empty());
  const Json asked = {{"model", "demo"},
                      {"prompt", "Once upon a time"},
                      {"options", kOptions},
                      {"keep_alive", "5m"}};
  const http::Reply reply = edge.post("/api/generate", asked);
  EXPECT_EQ(reply.headers.get("Content-Type"), "application/x-ndjson");
  const std::vector<Json> lines = lines_of(reply);
  ASSERT_GT(lines.size(), 2u);
  std::string streamed;
  for (const Json& line : lines) {
    streamed += line["response"].get<std::string>();
    EXPECT_EQ(line["model"], "demo");
    EXPECT_EQ(line["done"], &line == &lines.back());
  }
  EXPECT_EQ(streamed, text);
  const Json whole =
      edge.ask("/api/generate", with(asked, {{"stream", false}, {"model", "demo:latest"}}));
  EXPECT_EQ(whole["response"], text);
  for (const Json& end : {lines.back(), whole}) {
    EXPECT_EQ(end["done"], true);
    EXPECT_EQ(end["done_reason"], "length");
    EXPECT_EQ(end["eval_count"], 12);
    EXPECT_EQ(end["prompt_eval_count"], completion["usage"]["prompt_tokens"]);
    const int64_t total = end["total_duration"], first = end["prompt_eval_duration"];
    EXPECT_GT(first, 0) << end;
    EXPECT_EQ(end["eval_duration"], total - first) << end;
    EXPECT_GT(total, 1000000) << end;  // nanoseconds
  }
  EXPECT_EQ(edge.ask("/api/generate", {{"model", "demo"}})["done_reason"], "load");
}

TEST(EdgeOllama, ChatIsAChat) {
  EdgeServer& edge = Demo::edge();
  Json messages = {{{"role", "system"}, {"content", "A story."}},
                   {{"role", "user"}, {"content", "Once upon a time"}}};
  EXPECT_EQ(edge.ask("/apply-template", {{"messages", messages}})["prompt"],
            "A story.\n\nOnce upon a time");
  const Json chat =
      edge.ask("/v1/chat/completions", with(kSampling, {{"messages", messages}}))["choices"][0];
  messages[1]["images"] = Json::array();
  const Json asked = {
      {"model", "demo"}, {"messages", messages}, {"options", kOptions}, {"tools", Json::array()}};
  const Json whole = edge.ask("/api/chat", with(asked, {{"stream", false}}));
  EXPECT_EQ(whole["message"]["role"], "assistant");
  EXPECT_EQ(whole["message"]["content"], chat["message"]["content"]);
  EXPECT_EQ(whole["done_reason"], chat["finish_reason"]);
  std::string streamed;
  for (const Json& line : lines_of(edge.post("/api/chat", asked))) {
    streamed += line["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(chat["message"]["content"], streamed);
  // A system's words make a prompt a chat's.
  const Json system = edge.ask("/api/generate", {{"model", "demo"},
                                                 {"system", "A story."},
                                                 {"prompt", "Once upon a time"},
                                                 {"options", kOptions},
                                                 {"stream", false}});
  EXPECT_EQ(system["response"], chat["message"]["content"]);
}

TEST(EdgeOllama, EmbedIsEmbeddings) {
  EdgeServer& edge = Demo::edge();
  const Json input = {"Once upon a time", "The king"};
  const Json ours = edge.ask("/v1/embeddings", {{"input", input}});
  const Json theirs = edge.ask("/api/embed", {{"model", "demo"}, {"input", input}});
  ASSERT_EQ(theirs["embeddings"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(theirs["embeddings"][i], ours["data"][i]["embedding"]);
  EXPECT_EQ(theirs["prompt_eval_count"], ours["usage"]["prompt_tokens"]);
}

TEST(EdgeOllama, ListsTheModelAndWhatIsHere) {
  EdgeServer& edge = Demo::edge();
  EXPECT_TRUE(Json::parse(edge.get("/api/version").body)["version"].is_string());
  const Json tags = Json::parse(edge.get("/api/tags").body)["models"];
  ASSERT_EQ(tags.size(), 1u);
  EXPECT_EQ(tags[0]["name"], "demo:latest");
  EXPECT_EQ(tags[0]["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(tags[0]["details"]["family"], "gpt2");
  EXPECT_EQ(tags[0]["details"]["parameter_size"], "12.6M");
  const Json running = Json::parse(edge.get("/api/ps").body)["models"];
  EXPECT_EQ(running[0]["name"], "demo:latest");
  EXPECT_EQ(running[0]["context_length"], 512);
  // Some of its blocks are on the cloud.
  EXPECT_GT(running[0]["size"].get<int64_t>(), 0);
  EXPECT_GT(tags[0]["size"].get<int64_t>(), running[0]["size"].get<int64_t>());
}

TEST(EdgeOllama, ShowDescribesTheModel) {
  EdgeServer& edge = Demo::edge();
  const Json shown = edge.ask("/api/show", {{"model", "demo:latest"}, {"verbose", false}});
  EXPECT_EQ(shown["capabilities"], Json({"completion"}));
  EXPECT_EQ(shown["details"]["family"], "gpt2");
  EXPECT_EQ(shown["template"], "");
  const Json& info = shown["model_info"];
  EXPECT_EQ(info["general.architecture"], "gpt2");
  EXPECT_EQ(info["gpt2.context_length"], 512);
  EXPECT_EQ(info["gpt2.embedding_length"], 320);
  EXPECT_EQ(info["gpt2.block_count"], 8);
  EXPECT_GT(info["general.parameter_count"], 10'000'000);
  EXPECT_EQ(edge.ask("/api/show", {{"name", "demo"}})["model_info"], info);
  const http::Reply none = edge.post("/api/show", {{"model", "llama3"}});
  EXPECT_EQ(none.status, 404);
  EXPECT_TRUE(Json::parse(none.body)["error"].is_string()) << none.body;

  Pair encoder(SPLIT_SOURCE_DIR "/tests/golden/models/st-minilm");
  EdgeServer embeds(encoder.arguments({"--cut=0"}));
  EXPECT_EQ(embeds.ready().ask("/api/show", {{"model", "st-minilm"}})["capabilities"],
            Json({"embedding"}));
  Pair chatting("rand-a");
  EdgeServer chats(chatting.arguments({"--chat-template={{ messages[0].content }}"}));
  EXPECT_EQ(chats.ready().ask("/api/show", {{"model", "rand-a"}})["template"],
            "{{ messages[0].content }}");
}

TEST(EdgeOllama, EveryErrorBelowApiIsOneLine) {
  EdgeServer& edge = Demo::edge();
  for (const auto& [reply, status] : {std::pair(edge.get("/api/none"), 404),
                                      {edge.post("/api/create", {{"model", "x"}}), 404},
                                      {edge.get("/api/generate"), 405},
                                      {edge.send("DELETE", "/api/delete", Json::object()), 400},
                                      {edge.post("/api/generate", Json::array()), 400}}) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_TRUE(Json::parse(reply.body)["error"].is_string()) << reply.body;
  }
  EXPECT_EQ(edge.get("/api/generate").headers.get("Allow"), "POST, OPTIONS");
  EXPECT_TRUE(Json::parse(edge.get("/v1/none").body)["error"].is_object());
  EXPECT_TRUE(Json::parse(edge.get("/apinone").body)["error"].is_object());
}

TEST(EdgeOllama, SaysWhatIsWrongInOneLine) {
  EdgeServer& edge = Demo::edge();
  const Json hi = {{{"role", "user"}, {"content", "hi"}}};
  const std::tuple<const char*, Json, int, const char*> cases[] = {
      {"/api/generate", {{"model", "llama3"}, {"prompt", "a"}}, 404, "expected demo"},
      {"/api/generate", {{"model", "llama3"}}, 404, "expected demo"},
      {"/api/chat", {{"model", "llama3"}, {"messages", hi}}, 404, "expected demo"},
      {"/api/embed", {{"model", "llama3"}, {"input", "a"}}, 404, "expected demo"},
      {"/api/chat", {{"model", "demo"}, {"messages", hi}, {"tools", {1}}}, 400, "'tools'"},
      {"/api/generate", {{"model", "demo"}, {"prompt", "a"}, {"images", {"x"}}}, 400, "'images'"},
      {"/api/generate", {{"model", "demo"}, {"options", {{"mirostat", 1}}}}, 400, "'mirostat'"},
      {"/api/generate",
       {{"model", "demo"}, {"prompt", "a"}, {"options", {{"repeat_penalty", -1}}}},
       400,
       "'repeat_penalty'"},
      {"/api/generate", {{"prompt", "a"}}, 400, "'model'"}};
  for (const auto& [path, body, status, part] : cases) {
    const http::Reply reply = edge.post(path, body);
    EXPECT_EQ(reply.status, status) << body;
    const Json error = Json::parse(reply.body)["error"];
    ASSERT_TRUE(error.is_string()) << reply.body;
    EXPECT_NE(error.get<std::string>().find(part), std::string::npos) << error;
  }
}

TEST(EdgeOllama, AStreamThatFailsSaysSo) {
  Pair pair;
  auto arguments = pair.arguments({"--cut=1"});
  arguments.back() = "--retry-for=0";
  EdgeServer edge(arguments);
  edge.ready();
  pair.cloud.reset([](const http::Request&, int n) -> std::optional<http::Response> {
    if (n < 2) return std::nullopt;
    throw http::HttpError(503, wire::codes::kBusy, "come back");
  });
  const std::vector<Json> lines = lines_of(edge.post(
      "/api/generate",
      {{"model", "demo"}, {"prompt", "a"}, {"options", {{"num_predict", 8}, {"seed", 1}}}}));
  ASSERT_FALSE(lines.empty());
  ASSERT_TRUE(lines.back().contains("error")) << lines.back();
  EXPECT_NE(lines.back()["error"].get<std::string>().find("come back"), std::string::npos);
}

// --- OpenAI's responses

// The events of a stream, with their names.
std::vector<std::pair<std::string, Json>> named_events(const std::string& body) {
  std::vector<std::pair<std::string, Json>> events;
  std::istringstream in(body);
  std::string name;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (line.starts_with("data: ")) events.emplace_back(name, Json::parse(line.substr(6)));
  }
  return events;
}

TEST(EdgeResponses, AreAChatInOtherWords) {
  EdgeServer& edge = Demo::edge();
  const Json chat =
      edge.ask("/v1/chat/completions", {{"messages",
                                         {{{"role", "system"}, {"content", "A story."}},
                                          {{"role", "user"}, {"content", "Once upon a time"}}}},
                                        {"seed", 5},
                                        {"max_tokens", 12}});
  const std::string text = chat["choices"][0]["message"]["content"];
  const bool cut = chat["choices"][0]["finish_reason"] == "length";
  const Json asked = {{"model", "demo"},
                      {"instructions", "A story."},
                      {"seed", 5},
                      {"max_output_tokens", 12},
                      {"store", true},
                      {"reasoning", {{"effort", "low"}}},
                      {"tools", Json::array()}};
  const Json as_text = with(asked, {{"input", "Once upon a time"}});
  const Json as_list =
      with(asked, {{"input",
                    {{{"role", "user"},
                      {"content", {{{"type", "input_text"}, {"text", "Once upon a time"}}}}}}}});
  for (const Json& body : {as_text, as_list}) {
    const Json json = edge.ask("/v1/responses", body);
    EXPECT_EQ(json["object"], "response");
    EXPECT_EQ(json["status"], cut ? "incomplete" : "completed");
    ASSERT_EQ(json["output"].size(), 1u);
    EXPECT_EQ(json["output"][0]["content"][0]["type"], "output_text");
    EXPECT_EQ(json["output"][0]["content"][0]["text"], text);
    EXPECT_EQ(json["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    EXPECT_EQ(json["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
  }
  const auto events =
      named_events(edge.post("/v1/responses", with(as_text, {{"stream", true}})).body);
  ASSERT_GT(events.size(), 8u);
  std::string streamed;
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, event] = events[i];
    EXPECT_EQ(event["type"], name);
    EXPECT_EQ(event["sequence_number"], i);
    if (name == "response.output_text.delta") streamed += event["delta"].get<std::string>();
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(names,
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.done",
                                      "response.content_part.done", "response.output_item.done",
                                      cut ? "response.incomplete" : "response.completed"}));
  EXPECT_EQ(events.back().second["response"]["output"][0]["content"][0]["text"], text);
  EXPECT_GT(events.back().second["response"]["usage"]["output_tokens"], 0);
}

TEST(EdgeResponses, RefuseWhatIsBeyondTextByName) {
  EdgeServer& edge = Demo::edge();
  const Json image = {
      {{"role", "user"}, {"content", {{{"type", "input_image"}, {"image_url", "data:,"}}}}}};
  for (const auto& [field, value] :
       {std::pair("tool_choice", Json{{"type", "web_search"}}),
        {"previous_response_id", Json("resp_1")},
        {"background", Json(true)},
        {"truncation", Json("auto")},
        {"input", image},
        {"input", Json{{{"type", "computer_call_output"}, {"call_id", "a"}, {"output", "b"}}}},
        {"input", Json::array()},
        {"max_output_tokens", Json(-1)},
        {"text", Json{{"format", {{"type", "yaml"}}}}},
        {"no_such_field", Json(1)}}) {
    const http::Reply reply = edge.post("/v1/responses", with({{"input", "a"}}, {{field, value}}));
    EXPECT_EQ(reply.status, 400) << field << value;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], field) << reply.body;
  }
  for (const char* field : {"include", "tools"}) {
    const http::Reply reply =
        edge.post("/v1/responses", with({{"input", "a"}}, {{field, {"no_such_value"}}}));
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], field) << reply.body;
  }
  const http::Reply wrong = edge.post("/v1/responses", {{"input", "a"}, {"model", "gpt-4"}});
  EXPECT_EQ(wrong.status, 404);
  EXPECT_NE(wrong.body.find("expected demo"), std::string::npos) << wrong.body;
}

TEST(EdgeResponses, LeaveOutWhatOpenAisServerWouldRun) {
  EdgeServer& edge = Demo::edge();
  const Json own = {{"type", "function"}, {"name", "look"}};
  const Json asked = {{"input", "Once upon a time"},
                      {"max_output_tokens", 8},
                      {"seed", 2},
                      {"include", {"reasoning.encrypted_content", "web_search_call.results"}},
                      {"client_metadata", {{"session", "a"}}},
                      {"prompt_cache_key", "a"},
                      {"store", false}};
  const Json mcp = {{"type", "mcp"}, {"server_label", "a"}, {"server_url", "https://a.example"}};
  const Json inside = {{"type", "namespace"}, {"name", "agents"}, {"tools", {own}}};
  const Json all = {inside,
                    {{"type", "web_search"}},
                    {{"type", "web_search_preview_2025_03_11"}},
                    {{"type", "local_shell"}},
                    {{"type", "image_generation"}},
                    mcp};
  const std::string names = "image_generation, local_shell, mcp, namespace, web_search";
  const auto header = [](const http::Reply& reply) {
    return reply.headers.get("Split-Tools-Left-Out").value_or("none");
  };
  const http::Reply plain = edge.post("/v1/responses", asked);
  ASSERT_EQ(plain.status, 200) << plain.body;
  EXPECT_EQ(header(plain), "none");
  testing::internal::CaptureStderr();
  for (const bool stream : {false, true}) {
    const http::Reply reply =
        edge.post("/v1/responses", with(asked, {{"tools", all}, {"stream", stream}}));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(header(reply), names);
    const Json response =
        stream ? named_events(reply.body).back().second["response"] : Json::parse(reply.body);
    EXPECT_EQ(response["output"][0]["content"], Json::parse(plain.body)["output"][0]["content"]);
    EXPECT_EQ(response["tools"], Json::array());
    EXPECT_EQ(response["tool_choice"], "none");
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                cat("left out of a request: tools of type ", names, "\n")),
            std::string::npos);
  Json more = all;
  more.push_back(own);
  const auto choice = [&](const Json& value) {
    const http::Reply reply =
        edge.post("/v1/responses", with(asked, {{"tools", more}, {"tool_choice", value}}));
    return std::pair(reply.status, reply.status == 200 ? Json::parse(reply.body)["tools"]
                                                       : Json::parse(reply.body)["error"]["param"]);
  };
  EXPECT_EQ(choice("auto"), std::pair(200, Json::array({own})));
  for (const Json& one : all) EXPECT_EQ(choice(one), std::pair(400, Json("tool_choice"))) << one;
  const Json allowed = {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {own, mcp}}};
  EXPECT_EQ(choice(allowed), std::pair(400, Json("tool_choice")));
}

}  // namespace
}  // namespace split::test
