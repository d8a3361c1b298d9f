// Grammars of JSON: what is of a schema, what of it is not held, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "base/error.h"
#include "base/resources/memory_budget.h"
#include "text/grammar_testing.h"
#include "text/json/in_order.h"

namespace split {
namespace {

std::string refusal(std::string_view text) {
  try {
    schema(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(error.field(), "response_format");
    return error.what();
  }
  return {};
}

bool accepts(const Grammar& grammar, std::string_view text) {
  Grammar::State state = grammar.start();
  for (const char byte : text) state = grammar.after(state, static_cast<uint8_t>(byte));
  return Grammar::can_end(state);
}

TEST(JsonGrammar, AnObjectIsAnyJsonObject) {
  const Grammar grammar = json_object_grammar();
  for (const char* text :
       {"{}", R"({"a": 1})", R"({"a":-1.5e-3,"b":[true, false,null,[],{}],"c":{"d":""}})",
        R"({"\u00e9\n\"\\":"é👑"})", R"({"a":0,"b":0.5,"c":1E+9})"}) {
    EXPECT_TRUE(accepts(grammar, text)) << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           "{}}",
                           R"({"a"})",
                           R"({a:1})",
                           R"({"a":1,})",
                           R"({"a":01})",
                           R"({"a":1.})",
                           R"({"a":.5})",
                           R"({"a":+1})",
                           R"({"a":"x)",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\xff\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{\"a\":\"\xc0\x80\"}",
                           R"({"a":"\ud800"})",
                           R"({"a":"\x"})",
                           R"({"a":tru})",
                           R"({"a":1e999})",
                           R"({"a":1  })",
                           R"({"a":[1,]})",
                           R"({"a":1234567890123456789})"}) {
    EXPECT_FALSE(accepts(grammar, text)) << text;
  }
}

TEST(JsonGrammar, ASchemaSaysWhatIsThere) {
  struct Case {
    const char* schema;
    std::vector<const char*> right, wrong;
  };
  for (const auto& [text, right, wrong] : std::vector<Case>{
           {R"({"type":"integer"})", {"0", "-12", "999999999999999"}, {"1.5", "01", "\"1\"", ""}},
           {R"({"type":"number"})", {"1.5", "-0.1e-5"}, {"true"}},
           {R"({"type":["string","null"]})", {"\"\"", "null"}, {"1", "nul"}},
           {R"({"type":"boolean"})", {"true", "false"}, {"null"}},
           {R"({"enum":["a",1,null,{"b":[2]}]})",
            {"\"a\"", "1", "null", R"({"b":[2]})"},
            {"\"b\""}},
           {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
           {R"({"const":"x"})", {"\"x\""}, {"\"y\""}},
           {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
            {"[1]", "[1,2]", "[1, 2,3]"},
            {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]"}},
           {R"({"type":"array","items":{"type":"null"},"minItems":2})",
            {"[null,null]", "[null,null,null,null]"},
            {"[]", "[null]"}},
           {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
           {R"({"type":"array"})", {"[]", "[1,\"a\",{}]"}, {"{}"}},
           {R"({"type":"string","minLength":1,"maxLength":2})",
            {"\"a\"", "\"é\\n\"", "\"👑👑\""},
            {"\"\"", "\"abc\""}},
           {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},
                "c":{"const":1}},"required":["b"]})",
            {R"({"b":null})", R"({"a":1,"b":null})", R"({"a":1, "b":null,"c": 1})",
             R"({"b":null,"c":1})"},
            {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,})", R"({"b":null,"d":1})"}},
           {R"({"type":"object","properties":{"a":{}}})", {"{}", R"({"a":[1]})"}, {R"({"b":1})"}},
           {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"b":1})"}},
           {R"({"type":"object","additionalProperties":{"type":"integer"}})",
            {"{}", R"({"b":1,"c":2})"},
            {R"({"b":"x"})"}},
           {R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"a":true},
                "required":["a"]}]})",
            {"null", R"({"a":false})"},
            {"{}"}},
           {R"({"$defs":{"one":{"type":"integer"},"two":{"type":"array",
                "items":{"$ref":"#/$defs/one"}}},"$ref":"#/$defs/two"})",
            {"[]", "[1,2]"},
            {"[null]"}}}) {
    const Grammar grammar = schema(text);
    for (const char* one : right) EXPECT_TRUE(accepts(grammar, one)) << text << " " << one;
    for (const char* one : wrong) EXPECT_FALSE(accepts(grammar, one)) << text << " " << one;
  }
}

TEST(JsonGrammar, HoldsBoundsTuplesAndAlternatives) {
  struct Case {
    const char* schema;
    std::vector<const char*> right, wrong;
  };
  for (const auto& [text, right, wrong] : std::vector<Case>{
           {R"({"type":"integer","exclusiveMinimum":0,"maximum":9007199254740991})",
            {"1", "10", "999999999999999"},
            {"0", "-1", "01"}},
           {R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
            {"0", "-999999999999999"},
            {"9007199254740992", "1.5"}},
           {R"({"type":["integer","null"],"minimum":0.5,"exclusiveMaximum":3})",
            {"1", "2", "null"},
            {"0", "3", "-1"}},
           {R"({"type":"integer","minimum":9007199254740000,"maximum":9007199254740991})",
            {"9007199254740000", "9007199254740991"},
            {"9007199254740992", "9007199254739999", "1"}},
           {R"({"type":"number","minimum":0})", {"0", "1.5e3"}, {"-1"}},
           {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}]})",
            {R"(["a",1])", R"(["a", 1])"},
            {"[]", R"(["a"])", R"([1,"a"])", R"(["a",1,2])"}},
           {R"({"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"integer"},
                "maxItems":3})",
            {"[null]", "[null,1]", "[null,1,2]"},
            {"[]", "[1]", "[null,1,2,3]"}},
           {R"({"type":"array","items":[{"type":"null"},{"type":"boolean"}],
                "additionalItems":false})",
            {"[null,true]"},
            {"[null]", "[null,true,1]"}},
           {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"maxItems":1})",
            {"[1]"},
            {"[]", "[1,2]"}},
           {R"({"type":"array","prefixItems":[{"const":1}],"minItems":2,"maxItems":2})",
            {"[1,null]", "[1,[]]"},
            {"[1]", "[1,2,3]"}},
           {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
           {R"({"oneOf":[
                {"type":"object","properties":{"type":{"type":"string","const":"a"},"x":{"type":"null"}},
                 "required":["type","x"],"additionalProperties":false},
                {"type":"object","properties":{"type":{"type":"string","const":"b"}},
                 "required":["type"],"additionalProperties":false}]})",
            {R"({"type":"a","x":null})", R"({"type":"b"})"},
            {R"({"type":"a"})", R"({"type":"c"})", R"({"type":"b","x":null})"}},
           {R"({"oneOf":[{"type":"string"},{"type":"null"}]})", {"\"\"", "null"}, {"1"}},
           {R"({"allOf":[{"type":"null"}]})", {"null"}, {"1"}},
           {R"({"type":"object","propertyNames":{"type":"string"},
                "additionalProperties":{"type":"boolean"}})",
            {"{}", R"({"any":true})"},
            {R"({"any":1})"}},
           {R"({"type":"object","propertyNames":{"type":"string","enum":["a","b"]},
                "additionalProperties":{"type":"null"},"required":["a","b"]})",
            {R"({"a":null,"b":null})"},
            {"{}", R"({"a":null})", R"({"a":1,"b":null})"}},
           {R"({"type":"object","propertyNames":{"enum":["a","b"]},
                "additionalProperties":{"type":"null"}})",
            {"{}", R"({"b":null,"a":null})"},
            {R"({"c":null})"}},
           {R"({"type":"object","properties":{"a":{"type":"null"}},
                "additionalProperties":{"type":"integer"}})",
            {"{}", R"({"a":null})"},
            {R"({"b":"x"})"}},
           {R"({"required":["a"]})", {R"({"a":1})"}, {"{}"}}}) {
    const Grammar grammar = schema(text);
    EXPECT_EQ(loosened(text), "") << text;
    for (const char* one : right) EXPECT_TRUE(accepts(grammar, one)) << text << " " << one;
    for (const char* one : wrong) EXPECT_FALSE(accepts(grammar, one)) << text << " " << one;
  }
}

// Every bound of small integers, against counting.
TEST(JsonGrammar, IntegersKeepTheirBounds) {
  std::mt19937_64 random(7);
  const auto check = [](int64_t low, int64_t high, const std::vector<int64_t>& tried) {
    const Grammar grammar =
        schema(cat(R"({"type":"integer","minimum":)", low, R"(,"maximum":)", high, "}"));
    for (const int64_t one : tried) {
      EXPECT_EQ(accepts(grammar, cat(one)), low <= one && one <= high)
          << low << ".." << high << " " << one;
    }
  };
  std::vector<int64_t> small;
  for (int64_t one = -130; one <= 130; ++one) small.push_back(one);
  for (int i = 0; i < 200; ++i) {
    int64_t low = static_cast<int64_t>(random() % 240) - 120,
            high = static_cast<int64_t>(random() % 240) - 120;
    if (low > high) std::swap(low, high);
    check(low, high, small);
  }
  for (int i = 0; i < 500; ++i) {
    const auto drawn = [&] {
      const auto shift = random() % 50 + 14;
      return static_cast<int64_t>(random() >> shift) * (random() % 2 == 0 ? 1 : -1);
    };
    int64_t low = drawn(), high = drawn();
    if (low > high) std::swap(low, high);
    const int64_t kMost = 999'999'999'999'999;
    if (low < -kMost || high > kMost) continue;
    check(low, high,
          {low - 1, low, low + 1, high - 1, high, high + 1, low / 2 + high / 2, -low, -high, 0, 1});
  }
}

// Bounds of up to three places, open and closed ones, against whole numbers of millionths.
TEST(JsonGrammar, NumbersKeepTheirBounds) {
  std::mt19937_64 random(11);
  constexpr int64_t kUnit = 1'000'000;
  const auto written = [](int64_t millionths, int places) {
    const std::string digits = cat(std::abs(millionths % kUnit) + kUnit).substr(1);
    return cat(millionths < 0 ? "-" : "", std::abs(millionths / kUnit), places > 0 ? "." : "",
               digits.substr(0, static_cast<size_t>(places)));
  };
  const auto drawn = [&](int places) {
    int64_t step = kUnit;
    for (int i = 0; i < places; ++i) step /= 10;
    return (static_cast<int64_t>(random() % 4000) - 2000) * step / (random() % 3 == 0 ? 1 : 100) /
           step * step;
  };
  size_t accepted = 0;
  for (int i = 0; i < 300; ++i) {
    const int places = i % 4;
    int64_t low = drawn(places), high = drawn(places);
    if (low > high) std::swap(low, high);
    const bool opens = random() % 2 == 0, closes = random() % 2 == 0, below = random() % 4 == 0;
    if (low == high && (opens || closes)) continue;
    const std::string least = cat(R"(,")", opens ? "exclusiveMinimum" : "minimum", "\":");
    const std::string text =
        cat(R"({"type":"number")", below ? "" : least + written(low, places), R"(,")",
            closes ? "exclusiveMaximum" : "maximum", "\":", written(high, places), "}");
    ASSERT_EQ(loosened(text), "") << text;
    const Grammar grammar = schema(text);
    for (int tried = 0; tried < 400; ++tried) {
      const int digits = static_cast<int>(random() % 7);
      int64_t step = kUnit;
      for (int d = 0; d < digits; ++d) step /= 10;
      const int64_t near = random() % 3 == 0 ? low : random() % 2 == 0 ? high : 0;
      const int64_t one = near / step * step + (static_cast<int64_t>(random() % 41) - 20) * step;
      if (one == 0 && near < 0) continue;
      const bool above = below || low < one || (low == one && !opens);
      const bool right = above && (one < high || (one == high && !closes));
      accepted += right ? 1 : 0;
      ASSERT_EQ(accepts(grammar, written(one, digits)), right)
          << text << " " << written(one, digits);
    }
  }
  EXPECT_GT(accepted, 20000u);
  const Grammar part = schema(R"({"type":"number","minimum":0,"maximum":1})");
  for (const char* right : {"0", "0.0", "0.25", "1", "1.0", "0.999999999"})
    EXPECT_TRUE(accepts(part, right));
  for (const char* wrong : {"-0.1", "1.01", "00.5", "1e0", ".5", "01", "2"})
    EXPECT_FALSE(accepts(part, wrong));
}

// A schema keeps room for its other parts.
TEST(JsonGrammar, APatternTakesAPartOfTheRulesAlone) {
  std::string all = R"({"type":"object","properties":{)";
  for (int i = 0; i < 60; ++i)
    all += cat(i == 0 ? "" : ",", "\"p", i,
               R"(":{"type":"string","pattern":"^[a-z]{1,1000}-[0-9]{1,1000}$"})");
  EXPECT_EQ(loosened(all + "}}"), "pattern");
  size_t held = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string name = cat("p", i);
    const Grammar grammar = schema(all + R"(},"required":[")" + name + "\"]}");
    EXPECT_TRUE(accepts(grammar, cat("{\"", name, R"(": "a-1"})")));
    held += accepts(grammar, cat("{\"", name, R"(": "a1"})")) ? 0 : 1;
  }
  EXPECT_GT(held, 5u);
  EXPECT_LT(held, 60u);
}

std::string with_pattern(const std::string& pattern) {
  return cat(R"({"type":"string","pattern":)", json_quote(pattern), "}");
}

// The standard library's ECMAScript is the reference, on texts of few letters.
TEST(JsonGrammar, APatternIsFoundAsEcmaScriptFindsIt) {
  std::mt19937 random(3);
  for (const char* pattern : {"",
                              "a",
                              "^a",
                              "a$",
                              "^$",
                              "^a|b$",
                              "^(a|bc)*$",
                              "^(ab){2,3}$",
                              "^(ab){2,}$",
                              "^a?b+c*$",
                              "^[a-c]{0,2}$",
                              "^[^a]$",
                              "^[^ab]{2}$",
                              "^.$",
                              "^\\w+$",
                              "^\\W$",
                              "^\\d\\D$",
                              "^\\S\\s$",
                              "\\d{2}",
                              "^(?:a|(b|c){2})1$",
                              "^a\\.b$",
                              "^[\\w.-]+$",
                              "^\\x61\\u0062$",
                              "^[\"\\\\/]+$",
                              "^a+?$",
                              "^(a(b(c)?)?)?$",
                              "a.c|1\\n",
                              "^[\\t\\n]$",
                              "^[a-]$",
                              "^\\$\\^$"}) {
    const std::string text = with_pattern(pattern);
    ASSERT_EQ(loosened(text), "") << pattern;
    const Grammar grammar = schema(text);
    const std::regex reference(pattern);
    size_t found = 0;
    for (int i = 0; i < 4000; ++i) {
      constexpr const char* kWords[] = {"ab", "abab", "ababab", "abababab", "a.b", "axb", "$^"};
      const auto at = static_cast<size_t>(i);
      std::string word = at < std::size(kWords) ? kWords[at] : "";
      for (size_t n = at < std::size(kWords) ? 0 : random() % 7; n > 0; --n)
        word += "aabbcc1.-\n\t \"\\/$^A"[random() % 18];
      const bool matches = std::regex_search(word, reference);
      found += matches ? 1 : 0;
      ASSERT_EQ(accepts(grammar, json_quote(word)), matches) << pattern << " " << json_quote(word);
    }
    EXPECT_GT(found, 0u) << pattern;
  }
  // Characters of several bytes, which it does not know.
  const Grammar wide = schema(with_pattern("^[à-ÿ\\u4e00-\\u9fff]+.[^é]$"));
  for (const char* right : {"\"é👑x\"", "\"中文ab\"", "\"ÿà👑\""})
    EXPECT_TRUE(accepts(wide, right)) << right;
  for (const char* wrong : {"\"e👑x\"", "\"éaé\"", "\"中\"", "\"ꀀab\"", "\"\xe4\xb8\""}) {
    EXPECT_FALSE(accepts(wide, wrong)) << wrong;
  }
}

// Right ones and wrong ones of RFC 3339, 4122, 2673 and of JSON Schema's own test suite.
TEST(JsonGrammar, AFormatIsHeld) {
  struct Case {
    const char* format;
    std::vector<const char*> right, wrong;
  };
  for (const auto& [format, right, wrong] : std::vector<Case>{
           {"date",
            {"1963-06-19", "2020-01-31", "2020-02-29", "2000-02-29", "2021-02-28", "2020-04-30"},
            {"2021-02-29", "1900-02-29", "2020-01-32", "2020-04-31", "2020-13-01", "0000-01-01",
             "2020-00-10", "06/19/1963", "1998-1-20", "1963-06-19Z", "1963-06-1৪"}},
           {"time",
            {"08:30:06Z", "23:20:50.52Z", "08:30:06+00:20", "23:59:59-23:59"},
            {"008:030:006Z", "24:00:00Z", "00:60:00Z", "22:59:61Z", "01:02:03+24:00", "12:00:00",
             "08:30:06 PST", "12:00:00.Z"}},
           {"date-time",
            {"1963-06-19T08:30:06.283185Z", "1937-01-01T12:00:27.87+00:20",
             "1990-12-31T15:59:50-08:00"},
            {"1990-02-31T15:59:59.123-08:00", "1963-06-19 08:30:06Z", "1963-06-19T08:30:06",
             "2013-350T01:01:01"}},
           {"uuid",
            {"2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380",
             "00000000-0000-0000-0000-000000000000"},
            {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08-aa98-11ea-73b441d16380",
             "2eb8aa08aa9811eab4aa73b441d16380", "2eb8-aa08-aa98-11ea-b4aa73b44-1d16380"}},
           {"ipv4",
            {"192.168.0.1", "0.0.0.0", "255.255.255.255", "87.10.0.1"},
            {"127.0.0.0.1", "256.256.256.256", "127.0", "0x7f000001", "087.10.0.1", "1.2.3.4/24"}},
           {"email",
            {"joe.bloggs@example.com", "te-st+x@a-b.example.org", "a_1@x1.io"},
            {"2962", "joe.bloggs", ".test@example.com", "te..st@example.com", "test.@example.com",
             "joe@-example.com", "joe@example", "joe bloggs@example.com"}}}) {
    const std::string text = cat(R"({"type":"string","format":")", format, "\"}");
    EXPECT_EQ(loosened(text), "") << format;
    const Grammar grammar = schema(text);
    for (const char* one : right) EXPECT_TRUE(accepts(grammar, json_quote(one))) << format << one;
    for (const char* one : wrong) EXPECT_FALSE(accepts(grammar, json_quote(one))) << format << one;
  }
}

// A tool's arguments, of a schema that describes none.
TEST(JsonGrammar, ToolsWithoutArgumentsTakeNone) {
  for (const auto& [text, others] : std::vector<std::pair<const char*, bool>>{
           {"{}", false},
           {R"({"type":"object"})", false},
           {R"({"type":"object","properties":{}})", false},
           {R"({"type":"object","properties":{},"required":[]})", false},
           {R"({"properties":{},"additionalProperties":false})", false},
           {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}})", false},
           {R"({"properties":{},"additionalProperties":true})", true},
           {R"({"additionalProperties":{"type":"integer"}})", true},
           {R"({"propertyNames":{"type":"string"}})", true},
           {R"({"anyOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})", true}}) {
    JsonRules rules;
    std::vector<std::string> names;
    const Grammar::Symbol made = arguments_rule(rules, parsed(text), nullptr, names);
    const Grammar grammar = rules.take(made);
    EXPECT_TRUE(accepts(grammar, "{}")) << text;
    EXPECT_EQ(accepts(grammar, R"({"a":1})"), others) << text;
    JsonRules tagged;
    const auto list = argument_rules(tagged, parsed(text), nullptr, names);
    EXPECT_EQ(list.has_value(), !others) << text;
  }
  EXPECT_TRUE(accepts(schema(R"({"type":"object"})"), R"({"a":1})"));  // which is no tool
}

TEST(JsonGrammar, WhatIsNotHeldIsLoosenedByName) {
  for (const auto& [text, names, of_it] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {R"({"type":"string","pattern":"^(?=a).","format":"phone"})", "format, pattern",
            "\"b\""},
           {R"({"type":"string","pattern":"^a","format":"email","maxLength":9,"minLength":1})",
            "format, maxLength", "\"ab\""},
           {R"({"type":"string","pattern":"(a)\\1"})", "pattern", "\"b\""},
           {R"({"type":"string","pattern":"a{9999}"})", "pattern", "\"b\""},
           {R"({"type":"string","pattern":"(a"})", "pattern", "\"b\""},
           {R"({"type":"string","pattern":"[]"})", "pattern", "\"b\""},
           {R"({"type":"integer","format":"int32"})", "format", "1"},
           {R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"null"})", "", "null"},
           {R"({"type":"integer","multipleOf":5})", "multipleOf", "3"},
           {R"({"type":"number","minimum":0.1234567,"exclusiveMaximum":1e13})",
            "exclusiveMaximum, minimum", "-3.5e1"},
           {R"({"type":"integer","minimum":1e300})", "minimum", "1"},
           {R"({"type":"integer","maximum":5,"exclusiveMaximum":true})", "exclusiveMaximum", "5"},
           {R"({"type":"array","uniqueItems":true,"items":{"const":1}})", "uniqueItems", "[1,1]"},
           {R"({"type":"array","uniqueItems":false})", "", "[]"},
           {R"({"properties":{"a":{"properties":{"b":{"format":"uri"}}}}})", "format",
            R"({"a":{"b":"x"}})"},
           {R"({"type":"array","maxItems":257})", "maxItems", "[]"},
           {R"({"type":"array","maxItems":18446744073709551615})", "maxItems", "[]"},
           {R"({"type":"string","maxLength":5000})", "maxLength", "\"\""},
           {R"({"enum":["a"],"minLength":2})", "minLength", "\"a\""},
           {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf", "1"},
           {R"({"allOf":[{"type":"object","properties":{"a":{"const":1}}},{"required":["a"]}]})",
            "allOf", R"({"a":1})"},
           {R"({"type":"object","properties":{"a":{"const":1}},"anyOf":[{"required":["a"]}]})",
            "anyOf", "{}"},
           {R"({"type":"object","propertyNames":{"pattern":"^x"},
                "additionalProperties":{"const":1}})",
            "propertyNames", R"({"a":1})"},
           {R"({"type":"object","propertyNames":{"type":"string","pattern":"^x"},
                "additionalProperties":{"const":1}})",
            "", R"({"xa":1})"},
           {R"({"type":"null","x-order":3,"if":{}})", "if, x-order", "null"},
           {"{\"type\":\"null\",\"a\\r\\nSet-Cookie: b\":1}", "others", "null"},
           {R"({"$ref":"#"})", "$ref", "1"},
           {R"({"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"})",
            "$ref", "[[1]]"}}) {
    EXPECT_EQ(loosened(text), names) << text;
    EXPECT_TRUE(accepts(schema(text), of_it)) << text;
  }
}

TEST(JsonGrammar, WhatIsNoSchemaIsRefusedByName) {
  for (const auto& [text, what] : std::vector<std::pair<const char*, const char*>>{
           {R"({"type":"string","pattern":1})", "'pattern'"},
           {R"({"type":"string","format":{}})", "'format'"},
           {R"({"type":"integer","minimum":"1"})", "'minimum'"},
           {R"({"type":"integer","multipleOf":"1"})", "'multipleOf'"},
           {R"({"type":"integer","minimum":2,"maximum":1})", "bounds"},
           {R"({"oneOf":[]})", "'oneOf'"},
           {R"({"oneOf":{}})", "'oneOf'"},
           {R"({"type":"array","prefixItems":{}})", "'prefixItems'"},
           {R"({"type":"array","uniqueItems":1})", "'uniqueItems'"},
           {R"({"type":"object","additionalProperties":1})", "'additionalProperties'"},
           {R"({"type":"object","required":["a"],"additionalProperties":false})", "'required'"},
           {R"({"type":"thing"})", "'type'"},
           {R"({"type":[]})", "'type'"},
           {R"({"type":1})", "'type'"},
           {R"({"enum":[]})", "'enum'"},
           {R"({"type":"null","const":1})", "'const'"},
           {R"({"anyOf":[]})", "'anyOf'"},
           {R"({"required":"a"})", "'required'"},
           {R"({"required":[1]})", "'required'"},
           {R"({"properties":[1]})", "'properties'"},
           {R"({"type":"array","minItems":3,"maxItems":2})", "'maxItems'"},
           {R"({"type":"array","minItems":-1})", "'minItems'"},
           {R"({"$ref":"http://x"})", "'$ref'"},
           {R"({"$ref":"#/$defs/a"})", "'$ref'"},
           {"[]", "objects"},
           {"false", "objects"}}) {
    const std::string said = refusal(text);
    EXPECT_TRUE(said.starts_with("'response_format': ")) << text << said;
    EXPECT_NE(said.find(what), std::string::npos) << said;
  }
  // Each level refers to the next twice: each is one rule, and those far inside hold any value.
  std::string doubling = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 40; ++i) {
    doubling += cat("\"a", i, R"(":{"properties":{"x":{"$ref":"#/$defs/a)", i + 1,
                    R"("},"y":{"$ref":"#/$defs/a)", i + 1, "\"}}},");
  }
  doubling += R"("a40":{"type":"null"}}})";
  EXPECT_EQ(loosened(doubling), "$ref");
  EXPECT_TRUE(accepts(schema(doubling), R"({"x":{"y":{}}})"));
  // Long texts and wide bounds are shared.
  std::string many = R"({"properties":{)";
  for (int i = 0; i < 250; ++i) {
    many += cat(i == 0 ? "" : ",", "\"s", i, R"(":{"type":"string","maxLength":1000},"i)", i,
                R"(":{"type":"integer","minimum":1,"maximum":123456789})");
  }
  EXPECT_EQ(loosened(many + "}}"), "");
  std::string wide = R"({"enum":[0)";
  for (int i = 1; i < 600; ++i) wide += cat(",", i);
  EXPECT_FALSE(refusal(wide + "]}").empty());
}

TEST(JsonGrammar, IsPaidForBeforeItIsMade) {
  const auto taken = [](const Json& schema, uint64_t budget) {
    MemoryBudget all(budget);
    MemoryShare share(&all);
    json_schema_grammar(schema, &share);
    const uint64_t grammar = share.bytes();
    const std::string text = json_in_order(schema, &share);
    EXPECT_GE(share.bytes() - grammar, text.size());
    EXPECT_EQ(parsed(text), schema);
    return grammar;
  };
  const auto error_of = [&](const Json& schema, uint64_t budget) {
    try {
      taken(schema, budget);
    } catch (const Error& error) {
      return cat(error.kind() == ErrorKind::kBusy ? "busy: " : "", error.what());
    }
    return std::string();
  };
  const Json least = parsed(R"({"const":"a"})");
  std::string properties;
  for (int i = 0; i < 200; ++i) {
    properties +=
        cat(i == 0 ? "" : ",", "\"name_", i, R"(":{"type":"string","maxLength":)", i, "}");
  }
  const Json many = parsed(cat(R"({"properties":{)", properties, "}}"));
  // Some 20,000 rules, a few for each character that a text may have.
  EXPECT_LT(taken(least, 1 << 20), 4096u);
  EXPECT_GT(taken(many, 1 << 30), 1u << 20);
  EXPECT_TRUE(error_of(many, 1 << 20).starts_with("busy: ")) << error_of(many, 1 << 20);
  // Texts that fit alone and not together: seen before they are symbols, of which each has eight
  // bytes.
  const std::string one(100'000, 'a'), longer(1'000'000, '\n');
  Json texts = Json::array();
  for (int i = 0; i < 500; ++i) texts.push_back(cat(i, one));
  const std::string too_large = "'response_format': the schema is too large";
  EXPECT_EQ(error_of({{"enum", texts}}, 16 << 20), too_large);
  EXPECT_EQ(error_of({{"const", longer}}, 4096), too_large);
  EXPECT_EQ(error_of({{"const", Json{{longer, Json::array()}}}}, 4096), too_large);
  EXPECT_EQ(error_of({{"properties", Json{{longer, Json::object()}}}}, 4096), too_large);
  // The text has what the grammar does not hold.
  const Json described = {{"type", "null"}, {"description", longer}};
  EXPECT_TRUE(error_of(described, 6 << 20).starts_with("busy: "));
  EXPECT_EQ(error_of(described, 16 << 20), "");
}

TEST(JsonGrammar, AsTextItsMembersKeepTheirOrder) {
  for (const char* text : {"null", "[]", "{}", R"([1,"a\nb",[true],{}])",
                           R"({"b":{"z":1,"a":[]},"a":"\"","":-1.5})"}) {
    const std::string in_order = json_in_order(parsed(text));
    EXPECT_EQ(in_order, text);
  }
}

TEST(JsonGrammar, AsTextASchemaLacksWordsForPeople) {
  const Json schema = parsed(
      R"({"title":"x","type":"object","description":"y","properties":{"title":{"type":"string","examples":["a"]},)"
      R"("description":{"const":{"title":"kept"}},"pattern":{"enum":["a",{"description":"kept"}]}},"required":["title"]})");
  EXPECT_EQ(
      schema_in_order(schema),
      R"({"type":"object","properties":{"title":{"type":"string"},)"
      R"("description":{"const":{"title":"kept"}},"pattern":{"enum":["a",{"description":"kept"}]}},"required":["title"]})");
}

}  // namespace
}  // namespace split
