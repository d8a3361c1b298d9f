// Grammars of JSON: what is of a schema, what of it is not held, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

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

TEST(JsonGrammar, WhatIsNotHeldIsLoosenedByName) {
  for (const auto& [text, names, of_it] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {R"({"type":"string","pattern":"^a","format":"email"})", "format, pattern", "\"b\""},
           {R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"null"})", "", "null"},
           {R"({"type":"integer","multipleOf":5})", "multipleOf", "3"},
           {R"({"type":"number","minimum":1.5,"exclusiveMaximum":2})", "exclusiveMaximum, minimum",
            "3.5"},
           {R"({"type":"number","exclusiveMinimum":0})", "exclusiveMinimum", "0"},
           {R"({"type":"integer","minimum":1e300})", "minimum", "1"},
           {R"({"type":"integer","maximum":5,"exclusiveMaximum":true})", "exclusiveMaximum", "5"},
           {R"({"type":"array","uniqueItems":true,"items":{"const":1}})", "uniqueItems", "[1,1]"},
           {R"({"type":"array","uniqueItems":false})", "", "[]"},
           {R"({"properties":{"a":{"properties":{"b":{"format":"date"}}}}})", "format",
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
            "pattern", R"({"a":1})"},
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
