// How templates write calls and thoughts, and what an answer in that form says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "calls/tool_cases.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

using Calls = AnswerFormat::Calls;

AnswerFormat format_of(const std::string& name) {
  const ToolCase one{{{"template", name}}};
  const ChatTemplate chat = one.chat_template();
  return AnswerFormat::of(&chat);
}

TEST(AnswerFormat, IsFoundInTemplatesOfSixFamilies) {
  for (const char* name : {"qwen2", "qwen3"}) {
    const AnswerFormat qwen = format_of(name);
    EXPECT_EQ(qwen.calls, Calls::kJson);
    EXPECT_EQ(qwen.opens, "<tool_call>\n{\"name\": \"");
    EXPECT_EQ(qwen.middle, "\", \"arguments\": ");
    EXPECT_EQ(qwen.closes, "}\n</tool_call>");
    EXPECT_EQ(qwen.separator, "\n");
    EXPECT_EQ(qwen.list.opens + qwen.list.closes + qwen.id.opens, "");
    EXPECT_EQ(qwen.mark(), "<tool_call>");
  }
  EXPECT_FALSE(format_of("qwen2").thinks());
  EXPECT_EQ(format_of("qwen3").thought.opens, "<think>");
  EXPECT_EQ(format_of("qwen3").thought.closes, "</think>");
  const AnswerFormat mistral = format_of("mistral");
  EXPECT_EQ(mistral.calls, Calls::kJson);
  EXPECT_EQ(mistral.list.opens, "[TOOL_CALLS] [");
  EXPECT_EQ(mistral.opens, "{\"name\": \"");
  EXPECT_EQ(mistral.middle, "\", \"arguments\": ");
  EXPECT_EQ(mistral.closes, "}");
  EXPECT_EQ(mistral.separator, ", ");
  EXPECT_EQ(mistral.list.closes, "]");
  EXPECT_EQ(mistral.id.opens, ", \"id\": \"");
  EXPECT_EQ(mistral.id.closes, "\"");
  EXPECT_TRUE(mistral.short_ids);
  EXPECT_EQ(mistral.mark(), "[TOOL_CALLS]");
  const AnswerFormat llama = format_of("llama3");
  EXPECT_EQ(llama.calls, Calls::kJson);
  EXPECT_EQ(llama.opens, "{\"name\": \"");
  EXPECT_EQ(llama.middle, "\", \"parameters\": ");
  EXPECT_EQ(llama.closes, "}");
  EXPECT_TRUE(llama.one_call);
  EXPECT_EQ(llama.mark(), "");
  for (const char* name : {"gemma", "zephyr"}) {
    const AnswerFormat prompted = format_of(name);
    EXPECT_EQ(prompted.calls, Calls::kPrompted);
    EXPECT_FALSE(prompted.no_system);
    EXPECT_FALSE(prompted.thinks());
  }
  EXPECT_EQ(AnswerFormat::of(nullptr).calls, Calls::kPrompted);
}

TEST(AnswerFormat, IsFoundWhereEachArgumentHasTags) {
  for (const char* name : {"tagged", "tagged_thinks"}) {
    const AnswerFormat tagged = format_of(name);
    EXPECT_EQ(tagged.calls, Calls::kTagged);
    EXPECT_EQ(tagged.describe_calls(), "tagged");
    EXPECT_EQ(tagged.opens, "<tool_call>\n<function=");
    EXPECT_EQ(tagged.middle, ">\n");
    EXPECT_EQ(tagged.argument.opens, "<parameter=");
    EXPECT_EQ(tagged.argument_middle, ">\n");
    EXPECT_EQ(tagged.argument.closes, "\n</parameter>\n");
    EXPECT_EQ(tagged.closes, "</function>\n</tool_call>");
    EXPECT_EQ(tagged.separator, "\n");
    EXPECT_EQ(tagged.list.opens + tagged.list.closes + tagged.id.opens, "");
    EXPECT_EQ(tagged.mark(), "<tool_call>");
  }
  EXPECT_FALSE(format_of("tagged").thinks());
  EXPECT_EQ(format_of("tagged_thinks").thought.opens, "<think>");
}

TEST(AnswerFormat, IsFoundWhereTextsStandBetweenMarksOfTheirOwn) {
  const AnswerFormat quoted = format_of("quoted");
  EXPECT_EQ(quoted.calls, Calls::kQuoted);
  EXPECT_EQ(quoted.describe_calls(), "quoted");
  EXPECT_EQ(quoted.quote, "<|\"|>");
  EXPECT_EQ(quoted.opens, "<|tool_call>call:");
  EXPECT_EQ(quoted.closes, "<tool_call|>");
  EXPECT_EQ(quoted.middle + quoted.separator + quoted.list.opens + quoted.list.closes, "");
  EXPECT_EQ(quoted.mark(), "<|tool_call>");
  EXPECT_EQ(quoted.thought.opens, "<|channel>thought");
  EXPECT_EQ(quoted.thought.closes, "<channel|>");
}

// A template that writes an argument as what is given.
AnswerFormat format_of_argument(const std::string& argument) {
  const ChatTemplate chat(
      "{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
      "{% for c in m.tool_calls or [] %}<calls:{{ c.function.name }}>"
      "{% for k, v in c.function.arguments | items %}" +
      argument + "{% endfor %}</calls>{% endfor %}</m>{% endfor %}");
  return AnswerFormat::of(&chat);
}

TEST(AnswerFormat, TellsTagsFromOtherWaysToWriteAnArgument) {
  const AnswerFormat named = format_of_argument("<arg name=\"{{ k }}\">{{ v }}</arg>");
  EXPECT_EQ(named.calls, Calls::kTagged);
  EXPECT_EQ(named.opens, "<calls:");
  EXPECT_EQ(named.middle, ">");
  EXPECT_EQ(named.argument.opens, "<arg name=\"");
  EXPECT_EQ(named.argument_middle, "\">");
  EXPECT_EQ(named.argument.closes, "</arg>");
  EXPECT_EQ(named.closes, "</calls>");
  const AnswerFormat pairs = format_of_argument("\n<key>{{ k }}</key>\n<val>{{ v }}</val>\n");
  EXPECT_EQ(pairs.calls, Calls::kTagged);
  EXPECT_EQ(pairs.argument_middle, "</key>\n<val>");
  for (const char* other :
       {"{{ k }}={{ v }};", "<a k=\"{{ k }}\" v=\"{{ v }}\"/>", "<arg>{{ v }}</arg>",
        "<arg {{ k }}>{{ v | tojson }}</arg>", "<{{ k }}>{{ v }}</{{ k }}>",
        "<arg {{ k }} {{ v is string }}>{{ v }}</arg>", "({{ k }}: {{ v }})"}) {
    EXPECT_EQ(format_of_argument(other).calls, Calls::kNone) << other;
  }
}

// A template that writes calls in a way of its own.
TEST(AnswerFormat, SaysNothingOfCallsThatItDoesNotKnow) {
  const ChatTemplate odd(
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "call {{ c.function.name }} with {{ c.function.arguments | length }}{% endfor %}{% endfor "
      "%}");
  EXPECT_EQ(AnswerFormat::of(&odd).calls, Calls::kNone);
  EXPECT_TRUE(AnswerFormat::of(&odd).describe_calls().is_null());
  const ChatTemplate inside(
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
      "{% if add_generation_prompt %}A: <think>\n{% endif %}");
  EXPECT_EQ(AnswerFormat::of(&inside).thought.opens, "<think>");
  EXPECT_EQ(AnswerFormat::of(&inside).thought.closes, "</think>");
}

// As in Gemma 4's, whose prompt ends with an empty thought.
TEST(AnswerFormat, FindsThoughtsThatStandBeforeCallsAlone) {
  const std::string text =
      "{% for m in messages %}<|turn>{{ m.role }}\n"
      "{% if m.tool_calls and m.reasoning_content %}<|channel>thought\n{{ m.reasoning_content }}\n"
      "<channel|>{% endif %}{% for c in m.tool_calls or [] %}<|tool_call>call:{{ c.function.name "
      "+ '{' }}{% for k, v in c.function.arguments | items %}{{ k }}:<|\"|>{{ v }}<|\"|>{% endfor "
      "%}}"
      "<tool_call|>{% endfor %}{{ m.content }}<turn|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|turn>model\n<|channel>thought\n<channel|>{% endif %}";
  const ChatTemplate chat(text), tools("{{ tools }}" + text);
  for (const ChatTemplate* one : {&chat, &tools}) {
    const AnswerFormat format = AnswerFormat::of(one);
    EXPECT_EQ(format.thought.opens, "<|channel>thought");
    EXPECT_EQ(format.thought.closes, "<channel|>");
  }
  EXPECT_EQ(AnswerFormat::of(&tools).calls, Calls::kNone);
}

class GoldenAnswers : public testing::Test {
 protected:
  struct Run {
    SaidParts said;
    size_t calls = 0;
  };
  // The text in two pieces, with marks as a tokenizer has them.
  static SaidParts read(const TextForm& form, std::string_view text, size_t cut) {
    TextForm::State state = form.start();
    SaidParts said;
    const auto put = [&](std::string_view part) {
      const std::string mark = form.form().format.mark();
      while (!part.empty() && !state.over()) {
        const size_t at = mark.empty() ? part.npos : part.find(mark);
        const size_t n = at == 0 ? mark.size() : std::min(at, part.size());
        TextForm::Pieces pieces;
        EXPECT_NO_THROW(form.follow(state, part.substr(0, n), at == 0, pieces))
            << "cut at " << cut << " before " << part << " behind " << said.json();
        said.add(pieces);
        part.remove_prefix(n);
      }
    };
    put(text.substr(0, cut));
    put(text.substr(cut));
    TextForm::Pieces rest;
    form.finish(state, rest);
    said.add(rest);
    return said;
  }
};

TEST_F(GoldenAnswers, AreReadWhereverTheirTextIsCut) {
  for (const ToolCase& one : tool_cases()) {
    SCOPED_TRACE(one.name());
    const auto tokenizer = load_tokenizer(one.tokenizer_dir());
    ASSERT_TRUE(tokenizer);
    const ChatTemplate chat = one.chat_template();
    const TextForm form(one.form(AnswerFormat::of(&chat)), *tokenizer);
    nlohmann::json expected = {{"content", one.json["content"]},
                               {"reasoning_content", one.json["reasoning_content"]},
                               {"tool_calls", one.json["tool_calls"]}};
    const std::string says = one.text("says");
    for (size_t cut = 0; cut <= says.size(); ++cut) {
      // In a thought half a mark is no mark.
      const size_t mark = says.find("<tool_call>");
      if (one.text("name") == "the mark ends the thought" && cut > mark && cut < mark + 11)
        continue;
      EXPECT_EQ(read(form, says, cut).json(), expected) << "cut at " << cut;
    }
  }
}

// Each case's tokens are allowed one after the other, also where a call has to come.
TEST_F(GoldenAnswers, AreAllowedTokenByToken) {
  for (const ToolCase& one : tool_cases()) {
    SCOPED_TRACE(one.name());
    const auto tokenizer = load_tokenizer(one.tokenizer_dir());
    const ChatTemplate chat = one.chat_template();
    AnswerForm asked = one.form(AnswerFormat::of(&chat));
    const bool call_first = one.json["tool_calls"].size() > 0 && one.text("content").empty();
    for (const bool required : {false, true}) {
      if (required && !call_first) continue;
      if (required) asked.choice = AnswerForm::Choice::kRequired;
      if (asked.calls()) {  // as it travels
        asked = AnswerForm::read(parse_json(asked.to_json().dump(), 64, "a form"));
      }
      const TextForm form(asked, *tokenizer);
      TextForm::State state = form.start();
      SaidParts said;
      for (const int32_t id : tokenizer->encode(one.text("says"))) {
        if (state.over()) break;
        const auto mask = form.allowed(state);
        ASSERT_TRUE(mask == nullptr || (*mask)[static_cast<size_t>(id)] == 1)
            << "after " << said.json() << " came " << tokenizer->token_bytes(id);
        TextForm::Pieces pieces;
        form.follow(state, id, pieces);
        said.add(pieces);
      }
      EXPECT_TRUE(form.can_end(state) || state.over());
      TextForm::Pieces rest;
      form.finish(state, rest);
      said.add(rest);
      EXPECT_EQ(said.json()["tool_calls"], nlohmann::json::parse(one.json["tool_calls"].dump()));
    }
  }
}

// The form of a family's golden tools, where a call has to come.
struct RequiredForm {
  explicit RequiredForm(const std::string& family) {
    for (const ToolCase& one : tool_cases()) {
      if (one.name() != family + ": words before two calls") continue;
      tokenizer = load_tokenizer(one.tokenizer_dir());
      const ChatTemplate chat = one.chat_template();
      AnswerForm asked = one.form(AnswerFormat::of(&chat));
      asked.choice = AnswerForm::Choice::kRequired;
      form.emplace(std::move(asked), *tokenizer);
    }
  }
  bool fits(const std::string& text) const {
    TextForm::State state = form->start();
    TextForm::Pieces pieces;
    try {
      form->follow(state, text, false, pieces);
      return form->can_end(state);
    } catch (const Error&) {
      return false;
    }
  }
  std::optional<Tokenizer> tokenizer;
  std::optional<TextForm> form;
};

// A value is held to its schema where it is no text, and to its list where it has one.
TEST(TaggedCalls, AreHeldToTheirSchemas) {
  const RequiredForm form("tagged");
  const auto fits = [&](const std::string& arguments) {
    return form.fits("<tool_call>\n<function=" + arguments + "</function>\n</tool_call>");
  };
  const auto argument = [](const std::string& key, const std::string& value) {
    return cat("<parameter=", key, ">\n", value, "\n</parameter>\n");
  };
  const std::string word = argument("word", "x"), path = argument("path", "x"),
                    text = argument("text", "x");
  EXPECT_TRUE(fits("lookup>\n" + word));
  EXPECT_FALSE(fits("lookup>\n"));  // it is required
  EXPECT_TRUE(fits("lookup>\n" + word + argument("lang", "en")));
  EXPECT_FALSE(fits("lookup>\n" + word + argument("lang", "fr")));
  EXPECT_FALSE(fits("lookup>\n" + word + argument("lang", "\nen")));
  EXPECT_FALSE(fits("lookup>\n" + word + argument("other", "x")));
  EXPECT_TRUE(fits("edit>\n" + path + text + argument("line", "12")));
  for (const char* line : {"0", "1.5", "x", "", "\"1\"", "null"}) {
    EXPECT_FALSE(fits("edit>\n" + path + text + argument("line", line))) << line;
  }
  EXPECT_FALSE(fits("edit>\n" + path + text + argument("force", "True")));
  EXPECT_FALSE(fits("edit>\n" + text + path));  // their order is the schema's
  EXPECT_FALSE(fits("edit>\n" + path + argument("text", "\xff")));
  EXPECT_FALSE(fits("edit>\n" + path + argument("text", std::string(1, '\0'))));
  EXPECT_FALSE(fits("now>\n" + word));
}

TEST(QuotedCalls, AreHeldToTheirSchemas) {
  const RequiredForm form("quoted");
  const auto fits = [&](std::string call) {
    for (size_t at = 0; (at = call.find('~', at)) != call.npos;) call.replace(at, 1, "<|\"|>");
    return form.fits("<|tool_call>call:" + call + "<tool_call|>");
  };
  EXPECT_TRUE(fits("lookup{word:~x~}"));
  EXPECT_TRUE(fits("lookup{word:~x~,lang:~en~}"));
  for (const char* arguments :
       {"{}", "{word:x}", "{word:\"x\"}", "{~word~:~x~}", "{word:~x~,lang:~fr~}", "{word:~\xff~}",
        "{word:~x~,other:~x~}", "{lang:~en~,word:~x~}", "{word:~x~", "word:~x~", "({word:~x~})"}) {
    EXPECT_FALSE(fits(cat("lookup", arguments))) << arguments;
  }
  EXPECT_TRUE(fits("edit{path:~x~,text:~x~,line:12,force:false}"));
  for (const char* line : {"0", "1.5", "x", "", "~1~", "null"})
    EXPECT_FALSE(fits(cat("edit{path:~x~,text:~x~,line:", line, "}"))) << line;
  EXPECT_FALSE(fits("edit{path:~x~,text:~x~,force:True}"));
  EXPECT_TRUE(fits("query{filter:{name:~x~},tags:[~a~,~b~],limit:null}"));
  EXPECT_FALSE(fits("query{filter:{name:~x~},tags:[~a~,1]}"));
  EXPECT_TRUE(fits("now{}"));
  EXPECT_FALSE(fits("now{x:1}"));
}

TEST(QuotedCalls, TravelWithAMarkThatCanBeTold) {
  const RequiredForm form("quoted");
  const Json sent = form.form->form().to_json();
  EXPECT_EQ(AnswerForm::read(sent).format.quote, "<|\"|>");
  for (const char* quote : {"", "\"", "<>", "|x|", "< >", "<\xc3\xa9>"}) {
    Json json = sent;
    json["quote"] = quote;
    EXPECT_THROW(AnswerForm::read(json), Error) << quote;
  }
  Json json = sent;
  json["middle"] = "(";
  EXPECT_THROW(AnswerForm::read(json), Error);
}

// Words that have a schema are JSON beside such calls.
TEST(QuotedCalls, LeaveWordsTheirJson) {
  const RequiredForm quoted("quoted");
  AnswerForm asked = quoted.form->form();
  asked.choice = AnswerForm::Choice::kAuto;
  asked.schema = "";  // any object
  const TextForm form(asked, *quoted.tokenizer);
  for (const char* text :
       {"{\"s\": \"x\"}", "<|tool_call>call:free{s:<|\"|>x<|\"|>}<tool_call|>"}) {
    TextForm::State state = form.start();
    TextForm::Pieces pieces;
    EXPECT_NO_THROW(form.follow(state, text, false, pieces)) << text;
    EXPECT_TRUE(form.can_end(state) || state.over());
  }
}

// The pieces that a client is told of one call, text by text.
class ToldPieces {
 public:
  explicit ToldPieces(const char* family)
      : case_{{{"template", family},
               {"tools", nlohmann::ordered_json::parse(
                             R"([{"type":"function","function":{"name":"a","parameters":
        {"properties":{"n":{"type":"integer"},"s":{}}}}}])")}}} {}
  std::string operator()(std::string_view text) {
    TextForm::Pieces pieces;
    form_.follow(state_, text, text == form_.form().format.mark(), pieces);
    std::string all;
    for (const TextForm::Piece& piece : pieces)
      all += cat(piece.part == TextPiece::kName ? "N" : "A", "'", piece.bytes, "'");
    return all;
  }

 private:
  const ToolCase case_;
  const ChatTemplate chat_ = case_.chat_template();
  const std::optional<Tokenizer> tokenizer_ = load_tokenizer(case_.tokenizer_dir());
  const TextForm form_{case_.form(AnswerFormat::of(&chat_)), *tokenizer_};
  TextForm::State state_ = form_.start();
};

TEST(QuotedCalls, TellTheirArgumentsPieceByPiece) {
  ToldPieces told("quoted");
  EXPECT_EQ(told("<|tool_call>"), "");
  EXPECT_EQ(told("call:a"), "");
  EXPECT_EQ(told("{"), "N'a'");
  EXPECT_EQ(told("n"), "A'{'");
  EXPECT_EQ(told(":4"), "A'\"n\": 4'");
  EXPECT_EQ(told("2,s"), "A'2, '");
  EXPECT_EQ(told(":"), "A'\"s\": '");
  EXPECT_EQ(told("<|\"|"), "");
  EXPECT_EQ(told(">x\n"), "A'\"x\\n'");
  EXPECT_EQ(told("<|\""), "");
  EXPECT_EQ(told("|<|\""), "A'<|\\\"|'");
  EXPECT_EQ(told("|>}"), "A'\"}'");
  EXPECT_EQ(told("<tool_call|>"), "");
}

TEST(TaggedCalls, TellTheirArgumentsPieceByPiece) {
  ToldPieces told("tagged");
  EXPECT_EQ(told("<tool_call>"), "");
  EXPECT_EQ(told("\n<function=a"), "");
  EXPECT_EQ(told(">\n<par"), "N'a'");
  EXPECT_EQ(told("ameter=n>"), "A'{\"n\": '");
  EXPECT_EQ(told("\n4"), "A'4'");
  EXPECT_EQ(told("2\n</"), "A'2'");
  EXPECT_EQ(told("parameter>\n<parameter=s>"), "A', \"s\": \"'");
  EXPECT_EQ(told("\n\"x\n"), "A'\\\"x'");
  EXPECT_EQ(told("</parameters>"), "A'\\n</parameters>'");
  EXPECT_EQ(told("\n</parameter>\n"), "A'\"'");
  EXPECT_EQ(told("</function>\n"), "A'}'");
  EXPECT_EQ(told("</tool_call>"), "");
}

// An edge's form with tags, as a cloud reads it.
TEST(TaggedCalls, TravelWithTextsThatCanBeTold) {
  const ToolCase one{{{"template", "tagged"}, {"tools", nlohmann::ordered_json::parse(R"([
      {"type":"function","function":{"name":"a"}}])")}}};
  const ChatTemplate chat = one.chat_template();
  const Json sent = one.form(AnswerFormat::of(&chat)).to_json();
  const AnswerFormat read = AnswerForm::read(sent).format;
  EXPECT_EQ(read.calls, Calls::kTagged);
  EXPECT_EQ(read.argument.closes, "\n</parameter>\n");
  const auto refused = [&](const char* key, const Json& value) {
    Json json = sent;
    json[key] = value;
    try {
      AnswerForm::read(json);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return cat(key, " was taken");
  };
  const std::string why = "'response_format': an answer_form: 'argument_closes': expected a tag";
  for (const char* key : {"argument_opens", "argument_middle", "argument_closes", "closes"}) {
    EXPECT_EQ(refused(key, ""), why);
  }
  for (const char* closes : {"\n", "<>", "x</a>", "<\xc3\xa9>"})
    EXPECT_EQ(refused("argument_closes", closes), why) << closes;
  EXPECT_EQ(refused("argument_closes", cat("<", std::string(64, 'a'))), why);
  EXPECT_EQ(refused("argument_middle", " >"), why);
  EXPECT_EQ(refused("argument_opens", "</function></tool_call>x"), why);
  EXPECT_EQ(refused("argument_closes", 1),
            "'response_format': an answer_form: 'argument_closes': expected text of at most 256 "
            "bytes");
}

// Calls that have to come, drawn from all tokens that may: each parses, is of one of the tools, and
// has what its schema requires.
TEST(RequiredCalls, DrawnAtRandomParseAndAreOfTheirSchemas) {
  const char* const kTools = R"([
      {"type":"function","function":{"name":"get weather","parameters":{"type":"object","properties":
        {"where":{"type":"string","pattern":"(?=.).*"},"days":{"type":"integer","minimum":1,"maximum":9}},
        "required":["where","days"]}}},
      {"type":"function","function":{"name":"get","parameters":{"type":"object","properties":
        {"on":{"type":"boolean"},"kind":{"enum":["a","b"]}},"required":["on","kind"]}}},
      {"type":"function","function":{"name":"a\"b","strict":true}},
      {"type":"function","function":{"name":"list","parameters":{"type":"object","properties":
        {"all":{"type":"array","items":{"type":"number"},"maxItems":3}},"required":["all"]}}}])";
  const std::map<std::string, std::set<std::string>> required = {
      {"get weather", {"where", "days"}}, {"get", {"on", "kind"}}, {"a\"b", {}}, {"list", {"all"}}};
  const size_t draws = std::getenv("SPLIT_LONG") != nullptr ? 1700 : 40;
  size_t ended = 0;
  for (const char* name :
       {"qwen2", "qwen3", "llama3", "mistral", "gemma", "zephyr", "tagged", "quoted"}) {
    SCOPED_TRACE(name);
    ToolCase one{{{"template", name}, {"tool_choice", "required"}}};
    one.json["tools"] = nlohmann::ordered_json::parse(kTools);
    const auto tokenizer = load_tokenizer(one.tokenizer_dir());
    const ChatTemplate chat = one.chat_template();
    const TextForm form(one.form(AnswerFormat::of(&chat)), *tokenizer);
    EXPECT_EQ(form.loosened(), std::vector<std::string>{"get_weather.pattern"});
    for (size_t seed = 0; seed < draws; ++seed) {
      std::mt19937 random(static_cast<unsigned>(seed));
      TextForm::State state = form.start();
      SaidParts said;
      const auto take = [&](int32_t id) {
        TextForm::Pieces pieces;
        form.follow(state, id, pieces);
        said.add(pieces);
      };
      size_t tokens = 0;
      for (; tokens < 400 && !state.over(); ++tokens) {
        const auto mask = form.allowed(state);
        if (mask != nullptr && form.can_end(state) && random() % 2 == 0) break;
        if (mask == nullptr) {  // a thought
          ASSERT_TRUE(state.thinks());
          for (const int32_t id : tokenizer->encode(form.form().format.thought.closes)) take(id);
          continue;
        }
        std::vector<int32_t> may, close;
        for (size_t id = 0; id < mask->size(); ++id) {
          if ((*mask)[id] == 0) continue;
          may.push_back(static_cast<int32_t>(id));
          const std::string_view bytes = tokenizer->token_bytes(may.back());
          if (bytes.find_first_of("\"}]") != bytes.npos) close.push_back(may.back());
        }
        ASSERT_FALSE(may.empty());
        if (one.has_free_texts() && random() % 8 == 0) {  // a text ends by its tag alone
          const bool tagged = form.form().format.quote.empty();
          for (const int32_t id :
               tokenizer->encode(tagged ? "</parameter>" : form.form().format.quote)) {
            const auto now = form.allowed(state);
            if (now == nullptr || (*now)[static_cast<size_t>(id)] == 0) break;
            take(id);
          }
          continue;
        }
        const std::vector<int32_t>& from = !close.empty() && random() % 3 != 0 ? close : may;
        take(from[random() % from.size()]);
      }
      if (tokens == 400) continue;  // a long string
      ++ended;
      ASSERT_FALSE(said.calls.empty());
      EXPECT_EQ(said.content, "");
      for (const auto& [tool, arguments] : said.calls) {
        ASSERT_TRUE(required.contains(tool)) << tool;
        const nlohmann::json parsed = nlohmann::json::parse(arguments, nullptr, false);
        ASSERT_TRUE(parsed.is_object()) << arguments;
        for (const std::string& member : required.at(tool)) {
          EXPECT_TRUE(parsed.contains(member)) << arguments;
        }
      }
    }
  }
  EXPECT_GT(ended, 5 * draws);
}

}  // namespace
}  // namespace split::test
