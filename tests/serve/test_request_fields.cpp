// The fields of completions and chats, as clients send them: those that change no answer, those
// that would, and those that nobody knows. Calls the routes' handlers, without a network.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/resources/memory_budget.h"
#include "serve/chat.h"
#include "serve/compat/ollama.h"
#include "serve/compat/unread_fields.h"
#include "serve/completions.h"
#include "text/json/json_grammar.h"

namespace split::serve {
namespace {

// A model of 4 ids whose logits are the same everywhere.
class Flat : public Forward {
 public:
  explicit Flat(std::vector<float> logits) : logits_(std::move(logits)) {}
  std::span<const float> run(const SequenceRows& rows) override {
    out_.clear();
    for (size_t row = 0; row < rows.wanted_count(); ++row) {
      out_.insert(out_.end(), logits_.begin(), logits_.end());
    }
    return out_;
  }

 private:
  const std::vector<float> logits_;
  std::vector<float> out_;
};

class RequestFields : public testing::Test {
 protected:
  RequestFields() {
    config.vocab = 4;
    config.context = 64;
  }
  TextModel model() {
    return local_backend("m", config, nullptr, [this](size_t, const GenerateOptions&) {
      return std::make_unique<Flat>(logits);
    });
  }
  Json ask(const std::string& fields) {
    http::Request request;
    request.body = R"({"prompt":[0],"max_tokens":8,"return_token_ids":true)" + fields + "}";
    const http::Response response =
        completions(request, [this](const std::string&) { return model(); });
    return parse_json(response.body, 16, "the answer");
  }
  // The field that is refused, or nothing.
  std::string refused(const std::string& fields) {
    try {
      ask(fields);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.field());
    }
    return {};
  }

  ModelConfig config;
  std::vector<float> logits = {2, 1, 0, -1};
};

TEST_F(RequestFields, ThatChangeNoAnswerAreIgnored) {
  const Json plain = ask(R"(,"seed":1)")["choices"];
  for (const char* field : {R"("safety_identifier":"x")",
                            R"("prompt_cache_key":"x")",
                            R"("keep_alive":"5m")",
                            R"("store":true)",
                            R"("metadata":{"a":"b"})",
                            R"("user":"x")",
                            R"("service_tier":"auto")",
                            R"("modalities":["text"])",
                            R"("cache_prompt":true)",
                            R"("repeat_penalty":1.0)",
                            R"("prediction":{"type":"content","content":"x"})",
                            R"("tools":[])",
                            R"("tool_choice":"auto")",
                            R"("parallel_tool_calls":false)",
                            R"("audio":null)",
                            R"("suffix":"")",
                            R"("chat_template_kwargs":{})",
                            R"("mirostat":0)",
                            R"("none_such":null)",
                            R"("response_format":{"type":"text"})",
                            R"("stream_options":{"include_obfuscation":false})"}) {
    EXPECT_EQ(ask(cat(R"(,"seed":1,)", field))["choices"], plain) << field;
  }
}

TEST_F(RequestFields, ThatWouldChangeTheAnswerAreRefusedByName) {
  for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"tools", R"([{"type":"function"}])"},
           {"tool_choice", R"("required")"},
           {"audio", R"({"voice":"alloy"})"},
           {"modalities", R"(["text","audio"])"},
           {"web_search_options", "{}"},
           {"suffix", R"("x")"},
           {"repeat_last_n", "-2"},
           {"chat_template_kwargs", R"({"enable_thinking":false})"},
           {"mirostat", "2"},
           {"none_such", "0"},
           {"none_such", "false"}}) {
    EXPECT_EQ(refused(cat(",\"", name, "\":", value)), name) << value;
  }
}

// llama.cpp's and Ollama's penalty is of the last tokens, transformers' of all.
TEST_F(RequestFields, RepeatPenaltyIsOfTheLastTokens) {
  logits = {4, 3, 2, 1};
  const auto ids = [this](const char* fields) {
    return ask(cat(R"(,"temperature":0,)", fields))["choices"].at(size_t{0})["token_ids"].dump();
  };
  EXPECT_EQ(ids(R"("repeat_penalty":100)"), "[1,2,3,0,0,0,0,0]");
  EXPECT_EQ(ids(R"("repeat_penalty":100,"repeat_last_n":2)"), "[1,2,0,1,2,0,1,2]");
  EXPECT_EQ(ids(R"("repeat_penalty":100,"repeat_last_n":1)"), "[1,0,1,0,1,0,1,0]");
  EXPECT_EQ(ids(R"("repeat_penalty":100,"repeat_last_n":0)"), "[0,0,0,0,0,0,0,0]");
  EXPECT_EQ(ids(R"("repetition_penalty":100,"repeat_last_n":1)"), "[1,0,1,0,1,0,1,0]");
  EXPECT_EQ(refused(R"(,"repetition_penalty":1.1,"repeat_penalty":1.1)"), "repeat_penalty");
  // A text longer than the default's 64 is forgotten.
  config.context = 256;
  const std::string all = R"(,"temperature":0,"prompt":[3)" + [] {
    std::string zeros;
    for (int i = 0; i < 80; ++i) zeros += ",0";
    return zeros;
  }() + "],\"max_tokens\":1,\"return_token_ids\":true";
  const auto first = [&](const char* field) {
    http::Request request;
    request.body = "{" + all.substr(1) + field + "}";
    const auto find = [this](const std::string&) { return model(); };
    const std::string body = completions(request, find).body;
    return parse_json(body, 16, "the answer")["choices"].at(size_t{0})["token_ids"].dump();
  };
  logits = {4, 0.1f, 0.2f, 3};
  EXPECT_EQ(first(R"(,"repeat_penalty":10)"), "[3]");
  EXPECT_EQ(first(R"(,"repetition_penalty":10)"), "[0]");
}

TEST_F(RequestFields, AnIgnoredOneIsSaidOnce) {
  const auto said = [](const char* json) {
    testing::internal::CaptureStderr();
    finish_tolerant(wire::Fields(json));
    return testing::internal::GetCapturedStderr();
  };
  const std::string line = said(R"({"id_slot":1,"timings_per_token":null})");
  EXPECT_NE(line.find("ignored: 'id_slot'"), std::string::npos) << line;
  EXPECT_EQ(std::ranges::count(line, '\n'), 1) << line;
  EXPECT_EQ(said(R"({"id_slot":2})"), "");
}

TEST_F(RequestFields, BestOfGivesTheLikeliestOfItsTexts) {
  const Json all = ask(R"(,"seed":1,"n":6,"logprobs":0)")["choices"];
  std::vector<std::pair<double, size_t>> means;
  for (size_t i = 0; i < all.size(); ++i) {
    const Json& logprobs = all[i]["logprobs"]["token_logprobs"];
    double sum = 0;
    for (const Json& one : logprobs) sum += one.get<double>();
    means.emplace_back(-sum / static_cast<double>(logprobs.size()), i);
  }
  std::ranges::sort(means);
  for (const char* logprobs : {"", R"(,"logprobs":0)"}) {
    const Json answer = ask(cat(R"(,"seed":1,"n":2,"best_of":6)", logprobs));
    const Json& best = answer["choices"];
    ASSERT_EQ(best.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(best[i]["token_ids"], all[means[i].second]["token_ids"]);
      EXPECT_EQ(best[i]["index"], i);
      EXPECT_EQ(best[i]["logprobs"].is_null(), *logprobs == '\0');
    }
    EXPECT_EQ(answer["usage"]["completion_tokens"], 48);
  }
  EXPECT_NE(means[0].second, 0u);  // else nothing was chosen
  EXPECT_EQ(refused(R"(,"n":2,"best_of":1)"), "best_of");
  EXPECT_EQ(refused(R"(,"n":1,"best_of":2,"stream":true)"), "best_of");
  EXPECT_EQ(refused(R"(,"n":1,"best_of":17)"), "best_of");
}

TEST_F(RequestFields, BiasesAndPenaltiesReachTheSampler) {
  const auto ids = [&](const std::string& fields) {
    return ask(cat(R"(,"temperature":0,)", fields))["choices"].at(size_t{0})["token_ids"].dump();
  };
  EXPECT_EQ(ids(R"("logit_bias":{"0":-100})"), "[1,1,1,1,1,1,1,1]");
  EXPECT_EQ(ids(R"("logit_bias":{"3":3.5})"), "[3,3,3,3,3,3,3,3]");
  // The logits are 2, 1, 0, -1; the prompt's 0 is not counted.
  EXPECT_EQ(ids(R"("presence_penalty":1.5)"), "[0,1,0,0,0,0,0,0]");
  EXPECT_EQ(ids(R"("frequency_penalty":0.6)"), "[0,0,1,0,1,0,2,1]");
  EXPECT_EQ(refused(R"(,"logit_bias":{"4":1})"), "logit_bias");
  EXPECT_EQ(refused(R"(,"logit_bias":[1])"), "logit_bias");
}

TEST_F(RequestFields, StopTextsAreFewAndShort) {
  const std::string longest(1024, 'x'), longer(1025, 'x');
  const auto many = [](size_t count) {
    return cat(R"(,"stop":)", Json(std::vector<std::string>(count, "x")).dump());
  };
  for (const std::string& wrong :
       {cat(R"(,"stop":")", longer, "\""), cat(R"(,"stop":["a",")", longer, "\"]"), many(17),
        std::string(R"(,"stop":[1])"), std::string(R"(,"stop":"")")}) {
    EXPECT_EQ(refused(wrong), "stop") << wrong.substr(0, 40);
  }
  // These fit; the model has no tokenizer for them.
  for (const std::string& right : {cat(R"(,"stop":")", longest, "\""), many(16)}) {
    try {
      ask(right);
      ADD_FAILURE() << right.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_NE(std::string_view(error.what()).find("need a tokenizer"), std::string_view::npos)
          << error.what();
    }
  }
}

TEST_F(RequestFields, ATemplateEndsWithItsClient) {
  const ChatTemplate slow("{% for a in range(900000) %}{% endfor %}");
  TextModel model = this->model();
  model.chat = &slow;
  http::Request request;
  request.body = R"({"messages":[{"role":"user","content":"x"}]})";
  int asked = 0;
  request.client_gone = [&] { return ++asked == 50; };
  try {
    apply_template(request, [&](const std::string&) { return model; });
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBusy) << error.what();
  }
  EXPECT_EQ(asked, 50);
}

// A request pays for what it makes, once for each choice.
TEST_F(RequestFields, ChoicesArePaidFor) {
  const auto bytes = [&](const std::string& fields) {
    MemoryBudget budget;
    http::Request request;
    request.memory = std::make_shared<MemoryShare>(&budget);
    request.body = R"({"prompt":[[0],[1]],"max_tokens":1)" + fields + "}";
    completions(request, [this](const std::string&) { return model(); });
    return request.memory->bytes();
  };
  const uint64_t one = bytes(R"(,"n":1)"), two = bytes(R"(,"n":2)");
  EXPECT_GE(two - one, 16u << 10);
  EXPECT_EQ(bytes(R"(,"n":9)") - one, 8 * (two - one));
  EXPECT_GE(bytes(R"(,"logit_bias":{"0":1,"1":1,"2":1})"), one + 3 * sizeof(LogitBias));
}

// A model of the demo's tokens that says noise, in which what closes is likelier.
class Noise : public Forward {
 public:
  explicit Noise(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::span<const float> run(const SequenceRows& rows) override {
    out_.clear();
    for (size_t row = rows.count() - rows.wanted_count(); row < rows.count(); ++row) {
      const auto seed = static_cast<uint64_t>(rows.tokens[row]);
      for (int32_t id = 0; id < tokenizer_.size(); ++id) {
        const uint64_t at = (rows.past + row) << 20 | static_cast<uint64_t>(id);
        const bool closes =
            tokenizer_.token_bytes(id).find_first_of("\"]}") != std::string_view::npos;
        out_.push_back(static_cast<float>(uniform_at(seed, at)) + (closes ? 5.0f : 0.0f));
      }
    }
    return out_;
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<float> out_;
};

class Formats : public testing::Test {
 protected:
  Formats() {
    config.vocab = tokenizer->size();
    config.context = 512;
    config.end_of_text = tokenizer->end_of_text().value();
  }
  http::Request request(int seed, std::span<const int32_t> prompt, const std::string& format) {
    http::Request request;
    request.body = cat(R"({"max_tokens":200,"temperature":1,"return_token_ids":true,"seed":)", seed,
                       R"(,"prompt":)", Json(prompt).dump(), R"(,"response_format":)", format, "}");
    return request;
  }
  TextModel model() {
    return local_backend("m", config, &*tokenizer, [this](size_t, const GenerateOptions&) {
      return std::make_unique<Noise>(*tokenizer);
    });
  }
  Json ask(int seed, const std::string& format) {
    const auto find = [this](const std::string&) { return model(); };
    const std::string body = completions(request(seed, prompt, format), find).body;
    return parse_json(body, 16, "the answer")["choices"].at(size_t{0});
  }

  std::optional<Tokenizer> tokenizer = load_tokenizer(SPLIT_SOURCE_DIR "/weights/demo");
  ModelConfig config;
  const std::vector<int32_t> prompt = {70, 71};
  const std::string person =
      R"({"type":"json_schema","json_schema":{"name":"person","strict":true,"schema":{
          "type":"object","properties":{"name":{"type":"string","maxLength":8},
          "age":{"type":"integer"},"kind":{"enum":["king","cat"]}},
          "required":["name","age","kind"],"additionalProperties":false}}})";
};

TEST_F(Formats, EachOf30SeedsParsesAndIsOfItsSchema) {
  for (int seed = 1; seed <= 30; ++seed) {
    const Json choice = ask(seed, person);
    EXPECT_EQ(choice["finish_reason"], "stop");
    const Json one = parse_json(choice["text"].text(), 8, "the text");
    ASSERT_EQ(one.size(), 3u) << choice["text"].text();
    EXPECT_TRUE(one["name"].is_string() && one["age"].is_number_integer());
    EXPECT_TRUE(one["kind"] == "king" || one["kind"] == "cat");
    EXPECT_EQ(one.members()[0].name, "name");  // in the schema's order
    if (seed % 3 != 0) continue;
    const Json any = ask(seed, R"({"type":"json_object"})");
    if (any["finish_reason"] == "length") continue;
    EXPECT_TRUE(parse_json(any["text"].text(), 300, "the text").is_object());
  }
}

// A session's text that begins with some of its tokens goes on in the same grammar.
TEST_F(Formats, ATextGoesOnAtAnyToken) {
  const Json whole = ask(3, person);
  const Json& ids = whole["token_ids"];
  ASSERT_GT(ids.size(), 5u);
  for (size_t had = 0; had < ids.size(); ++had) {
    std::vector<int32_t> text = prompt;
    for (size_t i = 0; i < had; ++i) text.push_back(ids[i].get<int32_t>());
    http::Request more = request(3, text, person);
    more.body.insert(1, cat("\"generated\":", had, ","));
    const Json rest =
        parse_json(session_completions(more, model(), [](const SessionClient&) {}).body, 16,
                   "the answer")["choices"]
            .at(size_t{0});
    ASSERT_EQ(rest["token_ids"].size(), ids.size() - had);
    for (size_t i = had; i < ids.size(); ++i) EXPECT_EQ(rest["token_ids"][i - had], ids[i]);
    EXPECT_EQ(rest["finish_reason"], "stop");
  }
}

TEST_F(Formats, WithDraftsTheTextIsTheSame) {
  GenerateOptions options;
  options.max_tokens = 200;
  AnswerForm any;
  any.schema = "";
  options.form = std::make_shared<const TextForm>(any, *tokenizer);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    options.sampling.seed = seed;
    options.sampling.frequency_penalty = 0.3f;
    const auto tokens = [&](size_t drafts) {
      options.drafts = {.most = drafts, .always = true};
      Noise forward(*tokenizer);
      return generate(forward, config, &*tokenizer, prompt, options, {}).tokens;
    };
    const std::vector<int32_t> plain = tokens(0);
    EXPECT_FALSE(plain.empty());
    EXPECT_EQ(tokens(7), plain);
    EXPECT_EQ(tokens(2), plain);
  }
}

TEST_F(Formats, OllamasStopTextsAreAlike) {
  OllamaParts parts;
  parts.models = [] {
    std::vector<OllamaModel> models(1);
    models[0].id = "m";
    return models;
  };
  parts.completions = [this](const http::Request& request) {
    return completions(request, [this](const std::string&) { return model(); });
  };
  const std::vector<http::Route> routes = ollama_routes(parts);
  const auto generate = std::ranges::find(routes, "/api/generate", &http::Route::path);
  ASSERT_NE(generate, routes.end());
  http::Request asked;
  for (const Json& stop : {Json(std::vector<std::string>(17, "x")), Json(std::string(1025, 'x'))}) {
    asked.body = Json{{"model", "m"}, {"prompt", "a"}, {"options", {{"stop", stop}}}}.dump();
    try {
      generate->handler(asked);
      ADD_FAILURE() << "taken: " << stop.dump();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string_view(error.what()).find("'stop'"), std::string_view::npos);
    }
  }
}

TEST_F(Formats, WhatIsNoFormatIsRefused) {
  for (const char* format : {"1", "{}", R"({"type":"xml"})", R"({"type":"json_schema"})",
                             R"({"type":"json_schema","json_schema":{}})",
                             R"({"type":"json_schema","json_schema":{"schema":{"pattern":1}}})",
                             R"({"type":"json_schema","json_schema":{"schema":"{"}})"}) {
    EXPECT_THROW(ask(1, format), Error) << format;
  }
  tokenizer.reset();
  const auto find = [this](const std::string&) {
    return local_backend("m", config, nullptr,
                         [](size_t, const GenerateOptions&) { return nullptr; });
  };
  EXPECT_THROW(completions(request(1, prompt, R"({"type":"json_object"})"), find), Error);
}

}  // namespace
}  // namespace split::serve
