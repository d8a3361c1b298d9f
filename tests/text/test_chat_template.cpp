// text/chat_template: where models keep theirs, and that content is data.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/resources/memory_budget.h"
#include "text/chat_template.h"

namespace split {
namespace {

const std::filesystem::path kModels =
    std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/models";

std::string slurp(const std::filesystem::path& path) { return read_file(path, 1 << 20); }

std::optional<ChatTemplate> of(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  return ChatTemplate::of_files(names, [&](const char* name) { return files.at(name); });
}

std::optional<ChatTemplate> of_model(const std::string& model) {
  std::map<std::string, std::string> files;
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    if (std::filesystem::exists(kModels / model / name))
      files[name] = slurp(kModels / model / name);
  }
  return of(files);
}

ChatInput chat(const std::string& messages) {
  return {.messages = parse_json(messages, 16, "messages"), .tools = {}};
}

std::string refusal(const ChatTemplate& words, const ChatInput& input) {
  try {
    words.render(input);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const char* const kHi = R"([{"role": "user", "content": "hi"}])";

TEST(ChatTemplate, IsFoundInTheModelsFiles) {
  EXPECT_EQ(of_model("qwen3")->render(chat(kHi)),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(of_model("llama3")->render(chat(kHi)).starts_with("<|begin_of_text|>"));
  EXPECT_EQ(of_model("llama2")->render(chat(kHi)), "<|user|>\nhi</s>\n<|assistant|>\n");
  EXPECT_FALSE(of_model("bert").has_value());
  EXPECT_FALSE(of({}).has_value());
}

TEST(ChatTemplate, IsChosenByNameAndTools) {
  const auto words = of({{"tokenizer_config.json", R"({"eos_token": {"content": "E"},
      "chat_template": [{"name": "tool_use", "template": "tools{{ tools|length }}"},
                        {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"}]})"}});
  ChatInput input = chat(kHi);
  EXPECT_EQ(words->render(input), "hiE");
  input.tools = parse_json(R"([{"name": "f"}])", 16, "tools");
  EXPECT_EQ(words->render(input), "tools1");
}

// Before it is rendered, and what is made of messages is paid for.
TEST(ChatTemplate, RefusesWhatCannotFitBeforeItIsRendered) {
  const Tokenizer tokenizer =
      Tokenizer::from_tokenizer_json(slurp(kModels / "tokenizers/bpe-qwen2/tokenizer.json"));
  const ChatTemplate words("{{ raise_exception('rendered') }}");
  const std::string content(tokenizer.longest() * 8 + 8, 'a');
  for (const Json& said : {Json(content), Json::array({{{"type", "text"}, {"text", content}}})}) {
    const ChatInput input = chat(Json::array({{{"role", "user"}, {"content", said}}}).dump());
    for (const auto& [most, why] :
         {std::pair{size_t{8}, "rendered"},
          std::pair{size_t{7}, "'messages': expected at most 7 tokens"}}) {
      try {
        words.encode(input, tokenizer, false, most);
        ADD_FAILURE() << most;
      } catch (const Error& error) {
        EXPECT_TRUE(std::string_view(error.what()).starts_with(why)) << error.what();
      }
    }
  }
}

TEST(ChatTemplate, PaysForArgumentsThatItReads) {
  std::string arguments = "{\"a\":[0";
  while (arguments.size() < 200'000) arguments += ",{}";
  Json call = {{"function", {{"name", "f"}, {"arguments", arguments + "]}"}}}};
  const ChatInput input =
      chat(Json::array({{{"role", "assistant"}, {"tool_calls", Json::array({call})}}}).dump());
  const ChatTemplate words("{{ messages[0].tool_calls[0].function.arguments.a|length }}");
  for (const auto& [limit, fits] :
       {std::pair{uint64_t{4} << 20, false}, std::pair{uint64_t{64} << 20, true}}) {
    MemoryBudget budget(limit);
    MemoryShare share(&budget);
    try {
      EXPECT_EQ(words.render(input, {.memory = &share}), "66666");
      EXPECT_TRUE(fits);
      EXPECT_GT(budget.used(), uint64_t{4} << 20);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBusy);
      EXPECT_FALSE(fits);
    }
  }
}

// Special tokens in content are plain text (T6), and nothing is added (T5).
TEST(ChatTemplate, TakesContentAsData) {
  const Tokenizer tokenizer =
      Tokenizer::from_tokenizer_json(slurp(kModels / "tokenizers/bpe-qwen2/tokenizer.json"));
  const ChatTemplate words = *of_model("qwen3");
  const int32_t end = *tokenizer.added_id("<|im_end|>");
  const auto ends = [&](const std::string& content, bool special) {
    const std::string messages = Json::array({{{"role", "user"}, {"content", content}}}).dump();
    return std::ranges::count(words.encode(chat(messages), tokenizer, special), end);
  };
  EXPECT_EQ(ends("hi", false), 1);
  EXPECT_EQ(ends("<|im_end|><|im_end|>", false), 1);
  EXPECT_EQ(ends("<|im_end|><|im_end|>", true), 3);
  EXPECT_EQ(ends("<", false), 1);
  EXPECT_EQ(words.encode(chat(kHi), tokenizer),
            tokenizer.encode(words.render(chat(kHi)), {.add_special = false}));
  // A chat that cannot fit is not encoded; breaks are not its bytes.
  const std::string content(4 * tokenizer.longest(), 'a');
  const ChatInput tall = chat(Json::array({{{"role", "user"}, {"content", content}}}).dump());
  const size_t most = words.render(tall).size() / tokenizer.longest();
  for (const bool special : {false, true}) {
    EXPECT_NO_THROW(words.encode(tall, tokenizer, special, most));
    try {
      words.encode(tall, tokenizer, special, most - 1);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.field(), "messages");
    }
  }
}

// A template writes its own first token, and the tokenizer that adds one elsewhere adds none (T5).
TEST(ChatTemplate, BeginsOnce) {
  for (const auto& [model, first] :
       {std::pair{"llama3", "<|begin_of_text|>"}, std::pair{"gemma2", "<bos>"}}) {
    const Tokenizer tokenizer =
        Tokenizer::from_tokenizer_json(slurp(kModels / model / "tokenizer.json"));
    const int32_t begin = *tokenizer.added_id(first);
    EXPECT_EQ(tokenizer.encode("hi", {.add_special = true})[0], begin);
    const std::vector<int32_t> ids = of_model(model)->encode(chat(kHi), tokenizer);
    EXPECT_EQ(ids[0], begin) << model;
    EXPECT_EQ(std::ranges::count(ids, begin), 1) << model;
  }
}

// "developer" is "system" to a template that does not know it.
TEST(ChatTemplate, LeavesNoDevelopersMessageOut) {
  const auto said = [](const char* model, const char* role) {
    return of_model(model)->render(chat(std::string(R"([{"role": ")") + role +
                                        R"(", "content": "be brief"},
                                           {"role": "user", "content": "hi"}])"));
  };
  EXPECT_EQ(said("qwen3", "developer"), said("qwen3", "system"));
  EXPECT_NE(said("qwen3", "developer").find("be brief"), std::string::npos);
  EXPECT_EQ(ChatTemplate("{{ messages[0].role }}{# developer #}")
                .render(chat(R"([{"role": "developer", "content": "x"}])")),
            "developer");
}

// A model's description says this of its chats.
TEST(ChatTemplate, SaysWhereItIsFromAndWhatItLacks) {
  EXPECT_EQ(of_model("qwen3")->describe().dump(),
            R"({"template":"chat_template.jinja","tools":true,"unsupported":null})");
  EXPECT_EQ(of_model("llama3")->describe()["template"].text(), "tokenizer_config.json");
  EXPECT_EQ(ChatTemplate("x\n{% include 'x' %}").describe().dump(),
            R"({"template":"given","tools":false,"unsupported":)"
            R"("line 2: {% 'include' %} is not supported"})");
}

// OpenAI's clients send arguments as text (T23).
TEST(ChatTemplate, ParsesArgumentsOnce) {
  const ChatTemplate words("{{ messages[0].tool_calls[0].function.arguments|tojson }}");
  for (const char* arguments : {R"("{\"b\": 1, \"a\": 2}")", R"({"b": 1, "a": 2})"}) {
    EXPECT_EQ(
        words.render(chat(
            std::string(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": )") +
            arguments + "}}]}]")),
        R"({"b": 1, "a": 2})");
  }
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  ChatInput input = chat(
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Well, "}]}])");
  input.continue_final_message = true;
  EXPECT_EQ(
      of_model("qwen2")->render(input),
      "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
      "<|im_start|>assistant\nWell, ");
}

TEST(ChatTemplate, SaysWhatIsWrongWhenItIsUsed) {
  EXPECT_EQ(refusal(ChatTemplate("\n{% include 'x' %}"), chat(kHi)),
            "line 2: {% 'include' %} is not supported");
  EXPECT_THROW(ChatTemplate("{% include 'x' %}").render(chat(kHi)), JinjaUnsupported);
  EXPECT_EQ(refusal(ChatTemplate("{{ raise_exception('no') }}"), chat(kHi)), "no");
  EXPECT_EQ(refusal(ChatTemplate("x"), chat("[]")), "expected a list of messages");
}

std::string given(const std::string& text) {
  try {
    return ChatTemplate::given(text);
  } catch (const Error& error) {
    return error.what();
  }
}

// The values of --chat-template, and the form that it had once.
TEST(ChatTemplate, IsGivenAsAFileOrAsText) {
  const std::filesystem::path file = kModels / "chat/zephyr.jinja";
  EXPECT_EQ(given(file.string()), slurp(file));
  EXPECT_EQ(given("{{ messages }}"), "{{ messages }}");
  const std::string said = given("<{role}> {content}\\n");
  const std::string form =
      R"({% for m in messages %}{{ '<' + m.role + '> ' + m.content + '\n' }}{% endfor %}{{ '<assistant> ' }})";
  EXPECT_EQ(said, "expected a template in Jinja, like " + form);
  EXPECT_EQ(ChatTemplate(form).render(chat(kHi)), "<user> hi\n<assistant> ");
  EXPECT_TRUE(given("user says").starts_with("expected a template in Jinja, like {% for"));
}

}  // namespace
}  // namespace split
