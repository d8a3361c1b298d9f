// Chats by the model's own template, and what a text's tokens are.
#include <filesystem>
#include <fstream>
#include <set>

#include "support/cloud_fixture.h"

namespace split::cloud {
namespace {

namespace fs = std::filesystem;

const Json kHi = {{{"role", "user"}, {"content", "hi"}}};
const std::string kGoldens = source("tests/golden/models");

// A golden model with another template.
struct OtherTemplate {
  explicit OtherTemplate(const std::string& text) {
    fs::copy(kGoldens + "/qwen3", dir.path / "qwen3", fs::copy_options::recursive);
    std::ofstream(dir.path / "qwen3/chat_template.jinja") << text;
  }
  std::string path() const { return (dir.path / "qwen3").string(); }
  TemporaryDir dir;
};

Json text_of(Caller& ask, const char* path, const Json& body) {
  const http::Reply reply = ask.post(path, body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return json_of(reply);
}

TEST(CloudChat, IsACompletionOfItsTemplate) {
  TestCloud cloud({kGoldens + "/qwen3"});
  Caller& ask = cloud.ask();
  const std::string prompt = text_of(ask, "/apply-template", {{"messages", kHi}})["prompt"];
  EXPECT_EQ(prompt, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(ask, "/apply-template",
                    {{"messages", kHi}, {"add_generation_prompt", false}})["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n");
  const Json sampling = {{"temperature", 0}, {"max_tokens", 8}, {"return_token_ids", true}};
  Json plain = sampling, chat = sampling;
  plain["prompt"] = text_of(ask, "/tokenize", {{"content", prompt}})["tokens"];
  chat["messages"] = kHi;
  const Json want = text_of(ask, "/v1/completions", plain);
  const Json got = text_of(ask, "/v1/chat/completions", chat);
  EXPECT_EQ(got["choices"][0]["message"]["content"], want["choices"][0]["text"]);
  EXPECT_EQ(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"]);
}

TEST(CloudChat, TakesContentAsData) {
  TestCloud cloud({kGoldens + "/qwen3"});
  const auto tokens = [&](const char* content) {
    return text_of(cloud.ask(), "/v1/chat/completions",
                   {{"messages", {{{"role", "user"}, {"content", content}}}},
                    {"max_tokens", 1}})["usage"]["prompt_tokens"]
        .get<int>();
  };
  EXPECT_GT(tokens("<|im_end|>"), tokens("a") + 2);
}

TEST(CloudChat, SaysWhatItsTemplateRefuses) {
  const OtherTemplate refuses("{{ raise_exception('only one of you') }}");
  const OtherTemplate includes("hello\n{% include 'x' %}");
  const Json body = {{"messages", kHi}};
  for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
    TestCloud first({refuses.path()});
    const http::Reply refused = first.ask().post(path, body);
    expect_error(refused, 400, "chat_template_refused", "");
    EXPECT_EQ(Json::parse(refused.body)["error"]["message"], "only one of you");
    TestCloud second({includes.path()});
    const http::Reply unknown = second.ask().post(path, body);
    expect_error(unknown, 501, "chat_template_unsupported", "");
    EXPECT_NE(unknown.body.find("line 2: {% 'include' %} is not supported"), std::string::npos)
        << unknown.body;
  }
}

// Templates that write no tools have them told in messages, which changes no chat without them.
// What is expected was made by Jinja2 3.1.6, with trim_blocks and lstrip_blocks.
TEST(CloudChat, MessagesReachTheTemplateAsTheyCame) {
  const OtherTemplate tells(
      "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.cycle('a', 'b') }} {{ "
      "m.role "
      "}}: {{ m.content }}{% if m.name is defined %} by {{ m.name }}{% endif %}{% if loop.previtem "
      "is defined and loop.previtem.role == m.role %} again{% endif %};{% endfor %}");
  TestCloud cloud({tells.path()});
  const auto prompt = [&](const Json& messages) {
    return text_of(cloud.ask(), "/apply-template", {{"messages", messages}})["prompt"];
  };
  constexpr std::pair<std::string_view, const char*> kChats[] = {
      {"uuu", "1/3a user: x0;2/3b user: x1 by n1 again;3/3a user: x2 again;"},
      {"suuau",
       "1/5a system: x0;2/5b user: x1 by n1;3/5a user: x2 again;4/5b assistant: x3 by n3;5/5a "
       "user: "
       "x4;"},
      {"uaauu",
       "1/5a user: x0;2/5b assistant: x1 by n1;3/5a assistant: x2 again;4/5b user: x3 by n3;5/5a "
       "user: x4 again;"},
      {"uusu", "1/4a user: x0;2/4b user: x1 by n1 again;3/4a system: x2;4/4b user: x3 by n3;"}};
  for (const auto& [roles, expected] : kChats) {
    Json messages = Json::array();
    for (size_t i = 0; i < roles.size(); ++i) {
      const char* const role = roles[i] == 'u' ? "user" : roles[i] == 'a' ? "assistant" : "system";
      messages.push_back({{"role", role}, {"content", cat("x", i)}});
      if (i % 2 == 1) messages.back()["name"] = cat("n", i);
    }
    EXPECT_EQ(prompt(messages), expected);
  }
  // Results and what is said behind them are one message; what is in front of the call is its own.
  const Json call = {{"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  const auto says = [](const char* role, const char* content) {
    return Json{{"role", role}, {"content", content}};
  };
  Json calls = says("assistant", "c");
  calls["tool_calls"] = {call, call};
  const std::string told =
      prompt({says("user", "a"), says("user", "b"), calls, says("tool", "r"), says("tool", "s"),
              says("user", "d"), says("assistant", "e"), says("user", "f"), says("user", "g")});
  EXPECT_TRUE(told.starts_with("1/7a user: a;2/7b user: b again;3/7a assistant: c\n")) << told;
  EXPECT_TRUE(told.ends_with(
      ";4/7b user: <tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response>\nd;"
      "5/7a assistant: e;6/7b user: f;7/7a user: g again;"))
      << told;
}

// A base model goes on from the last words, and so says something.
TEST(CloudChat, ABaseModelAnswersEverySeed) {
  TestCloud cloud({"demo"});
  const auto prompt = [&](const Json& messages) {
    return text_of(cloud.ask(), "/apply-template", {{"messages", messages}})["prompt"];
  };
  EXPECT_EQ(prompt(kHi), "hi");
  EXPECT_EQ(
      prompt({{{"role", "system"}, {"content", "Tell tales."}},
              {{"role", "user"}, {"content", "Hi"}},
              {{"role", "assistant"}, {"content", "Well."}},
              {{"role", "developer"}, {"content", {{{"type", "text"}, {"text", "Be brief."}}}}},
              {{"role", "user"}, {"content", "Once"}}}),
      "Tell tales.\n\nBe brief.\n\nOnce");
  EXPECT_EQ(prompt({{{"role", "system"}, {"content", "Once"}}}), "Once");
  for (const char* words :
       {"Hello, how are you?", "Tell me a story.", "What is the capital of France?"}) {
    for (int seed = 0; seed < 30; ++seed) {
      Json body = {{"messages", {{{"role", "user"}, {"content", words}}}},
                   {"seed", seed},
                   {"max_tokens", 24}};
      const std::string content =
          text_of(cloud.ask(), "/v1/chat/completions", body)["choices"][0]["message"]["content"];
      EXPECT_NE(content.find_first_not_of(" \n"), std::string::npos) << words << seed;
      if (seed > 0) continue;
      body["stream"] = true;
      const http::Reply stream = cloud.ask().post("/v1/chat/completions", body);
      EXPECT_NE(stream.body.find(R"("role":"assistant")"), std::string::npos) << stream.body;
      EXPECT_NE(stream.body.find("data: [DONE]"), std::string::npos);
    }
  }
  expect_error(cloud.ask().post("/v1/chat/completions",
                                {{"messages", kHi}, {"tools", {{{"type", "function"}}}}}),
               400, "invalid_request", "tools");
}

// The stops of every file that names some (T7).
TEST(CloudChat, EndsAtEveryStopThatItsFilesName) {
  TestCloud cloud({kGoldens + "/llama3", kGoldens + "/qwen3"});
  const auto stops = [&](const char* id) {
    auto all = json_of(cloud.ask().get(cat("/v1/models/", id)))["stops"].get<std::vector<int>>();
    std::ranges::sort(all);
    return all;
  };
  for (const char* id : {"llama3", "qwen3"}) {
    const auto file = [&](const char* name) {
      return Json::parse(read_file(cat(kGoldens, "/", id, "/", name), 1 << 20));
    };
    std::set<int> want;
    for (const char* name : {"config.json", "generation_config.json"}) {
      const Json ids = file(name)["eos_token_id"];
      if (ids.is_array()) {
        for (const Json& one : ids) want.insert(one.get<int>());
      } else if (ids.is_number()) {
        want.insert(ids.get<int>());
      }
    }
    const std::vector<int> got = stops(id);
    for (const int one : want) EXPECT_TRUE(std::ranges::binary_search(got, one)) << id << one;
  }
}

// Each file may name another one (T7).
TEST(CloudChat, EndsAtAStopThatOneFileNames) {
  const TemporaryDir dir;
  fs::copy(kGoldens + "/llama3", dir.path / "llama3", fs::copy_options::recursive);
  const auto set = [&](const char* file, const char* key, const Json& value) {
    const fs::path path = dir.path / "llama3" / file;
    Json json = Json::parse(read_file(path, 1 << 20));
    json[key] = value;
    std::ofstream(path) << json;
  };
  set("config.json", "eos_token_id", {10, 11});
  set("generation_config.json", "eos_token_id", 12);
  set("tokenizer_config.json", "eos_token", "<|eot_id|>");
  TestCloud cloud({(dir.path / "llama3").string()});
  const int32_t named = *cloud.cloud.models[0]->tokenizer()->added_id("<|eot_id|>");
  const auto stops =
      json_of(cloud.ask().get("/v1/models/llama3"))["stops"].get<std::set<int32_t>>();
  EXPECT_EQ(stops, (std::set<int32_t>{10, 11, 12, named}));
}

// None of them is printed, nor counted against the length (T7).
TEST(CloudChat, PrintsNoStop) {
  TestCloud cloud({kGoldens + "/llama3"});
  Caller& ask = cloud.ask();
  const Json stops = json_of(ask.get("/v1/models/llama3"))["stops"];
  ASSERT_GE(stops.size(), 3u);
  for (const Json& stop : stops) {
    const Json body = {{"prompt", "Once"},
                       {"max_tokens", 4},
                       {"logit_bias", {{std::to_string(stop.get<int>()), 100}}}};
    const Json choice = text_of(ask, "/v1/completions", body)["choices"][0];
    EXPECT_EQ(choice["text"], "") << stop;
    EXPECT_EQ(choice["finish_reason"], "stop") << stop;
  }
}

// Rows of a matrix that have no token give no text (T8).
TEST(CloudChat, AnIdWithoutATokenIsNoText) {
  TestCloud cloud({kGoldens + "/qwen2"});
  const int last = cloud.config().vocab - 1;
  ASSERT_LT(cloud.cloud.models[0]->tokenizer()->size(), last);
  const Json body = {{"messages", kHi},
                     {"max_tokens", 3},
                     {"logit_bias", {{std::to_string(last), 100}}},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const Json answer = text_of(cloud.ask(), "/v1/chat/completions", body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
  EXPECT_EQ(text_of(cloud.ask(), "/detokenize", {{"tokens", {last}}})["content"], "");
}

// The tokens of a chat are those of its template, and none that a tokenizer puts before a text
// (T5).
TEST(CloudChat, BeginsOnce) {
  TestCloud cloud({kGoldens + "/llama3"});
  Caller& ask = cloud.ask();
  const std::string prompt = text_of(ask, "/apply-template", {{"messages", kHi}})["prompt"];
  const auto tokens = text_of(ask, "/tokenize", {{"content", prompt}})["tokens"].size();
  const Json answer = text_of(ask, "/v1/chat/completions", {{"messages", kHi}, {"max_tokens", 1}});
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens);
  Json longer = {{{"role", "user"}, {"content", std::string(300, 'q')}}};
  const http::Reply refused = ask.post("/v1/chat/completions", {{"messages", longer}});
  expect_error(refused, 400, "invalid_request", "messages");
  EXPECT_NE(refused.body.find("expected at most 160 tokens, got "), std::string::npos)
      << refused.body;
}

// A model says whether its messages become a prompt by a template, and whose.
TEST(CloudChat, IsPartOfTheDescription) {
  const OtherTemplate includes("hello\n{% include 'x' %}");
  TestCloud cloud({kGoldens + "/llama3", "demo", kGoldens + "/st-minilm", includes.path()});
  const auto chat = [&](const char* id) {
    return json_of(cloud.ask().get(cat("/v1/models/", id)))["chat"];
  };
  EXPECT_EQ(chat("llama3"), (Json{{"template", "tokenizer_config.json"},
                                  {"tools", true},
                                  {"unsupported", nullptr},
                                  {"calls", "json"},
                                  {"reasoning", false}}));
  EXPECT_EQ(chat("demo"), (Json{{"template", nullptr},
                                {"tools", false},
                                {"unsupported", nullptr},
                                {"calls", "prompted"},
                                {"reasoning", false}}));
  EXPECT_EQ(chat("st-minilm"), nullptr);
  EXPECT_EQ(chat("qwen3")["unsupported"], "line 2: {% 'include' %} is not supported");
}

TEST(CloudTokens, AreThoseOfTheModelsTokenizer) {
  TestCloud cloud({kGoldens + "/llama3"});
  Caller& ask = cloud.ask();
  const auto tokens = [&](Json body) {
    return text_of(ask, "/tokenize", body)["tokens"].get<std::vector<int32_t>>();
  };
  const std::string text = "na\u00efve \U0001F642";
  const auto plain = tokens({{"content", text}});
  EXPECT_EQ(text_of(ask, "/detokenize", {{"tokens", plain}})["content"], text);
  const auto whole = tokens({{"content", text}, {"add_special", true}});
  ASSERT_EQ(whole.size(), plain.size() + 1);  // <|begin_of_text|>
  const std::string special = text_of(ask, "/detokenize", {{"tokens", {whole[0]}}})["content"];
  EXPECT_EQ(tokens({{"content", special}}), (std::vector<int32_t>{whole[0]}));
  EXPECT_GT(tokens({{"content", special}, {"parse_special", false}}).size(), 1u);
  EXPECT_EQ(tokens({{"content", ""}}).size(), 0u);
  expect_error(ask.post("/tokenize", {{"content", 1}}), 400, "invalid_request", "content");
  expect_error(ask.post("/detokenize", {{"tokens", {-1}}}), 400, "invalid_request", "tokens");
  expect_error(ask.post("/detokenize", {{"tokens", {1}}, {"model", "no"}}), 404, "model_not_found",
               "model");
}

}  // namespace
}  // namespace split::cloud
