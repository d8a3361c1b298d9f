// Answers of a grammar: what JSON of a schema is, which tokens can come next, and that whatever is
// drawn of them parses and is as the schema says.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/resources/memory_budget.h"
#include "text/json/in_order.h"
#include "text/json/json_grammar.h"
#include "text/sampler.h"

namespace split {
namespace {

std::string demo_file(const char* name) {
  return read_file(std::string(SPLIT_SOURCE_DIR "/weights/demo/") + name, 1 << 20);
}
const Tokenizer& demo() {
  static const Tokenizer tokenizer =
      Tokenizer::from_vocab_merges(demo_file("vocab.json"), demo_file("merges.txt"));
  return tokenizer;
}

Json parsed(std::string_view text) { return parse_json(text, 32, "a test"); }
Grammar schema(std::string_view text) { return json_schema_grammar(parsed(text)).grammar; }
// Keywords that are not held, as a header has them.
std::string loosened(std::string_view text) {
  std::string all;
  for (const std::string& one : json_schema_grammar(parsed(text)).loosened) {
    all += (all.empty() ? "" : ", ") + one;
  }
  return all;
}
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

TEST(TokenGrammar, AllowsWhatGoesOn) {
  const Tokenizer& tokenizer = demo();
  const TokenGrammar grammar(
      schema(R"({"properties":{"name":{"type":"string","maxLength":5},"of":{"enum":["king",7]}},
                 "required":["name","of"]})"),
      tokenizer);
  TokenGrammar::State state = grammar.start();
  for (const char* piece : {"{", "\"name\"", ":", " \"k", "i", "\",", " \"of\":", "\"ki"}) {
    const auto allowed = grammar.allowed(state);
    ASSERT_EQ(allowed->size(), static_cast<size_t>(tokenizer.size()));
    size_t count = 0;
    for (int32_t id = 0; id < tokenizer.size(); ++id) {
      const bool goes_on = !tokenizer.is_special(id) && !tokenizer.token_bytes(id).empty() &&
                           !grammar.after(state, id).empty();
      ASSERT_EQ((*allowed)[static_cast<size_t>(id)] != 0, goes_on) << piece << " " << id;
      count += goes_on;
    }
    EXPECT_GT(count, 0u);
    EXPECT_EQ(grammar.allowed(state), allowed);  // kept
    for (const int32_t id : tokenizer.encode(piece)) state = grammar.after(state, id);
    ASSERT_FALSE(state.empty()) << piece;
  }
}

// A text of random draws from noise, in which what closes is likelier, so that texts end.
std::string drawn(const TokenGrammar& grammar, const Tokenizer& tokenizer, uint64_t seed) {
  std::vector<float> logits(static_cast<size_t>(tokenizer.size()));
  const SamplingOptions options{.temperature = 1, .top_p = 1, .seed = seed};
  TokenGrammar::State state = grammar.start();
  std::string text;
  for (uint64_t at = 0; at < 3000 && !Grammar::must_end(state); ++at) {
    for (size_t id = 0; id < logits.size(); ++id) {
      const std::string_view bytes = tokenizer.token_bytes(static_cast<int32_t>(id));
      const bool closes = bytes.find_first_of("\"]}") != std::string_view::npos;
      logits[id] = static_cast<float>(uniform_at(seed + 1, at << 20 | id)) + (closes ? 5.0f : 0.0f);
    }
    const int32_t id = sample(logits, {}, options, at, 0, *grammar.allowed(state));
    text += tokenizer.token_bytes(id);
    state = grammar.after(state, id);
  }
  EXPECT_TRUE(Grammar::can_end(state)) << text;
  return text;
}

TEST(TokenGrammar, EveryDrawParsesAndIsOfItsSchema) {
  using Parsed = nlohmann::json;
  const Tokenizer& tokenizer = demo();
  const TokenGrammar any(json_object_grammar(), tokenizer);
  const TokenGrammar person(schema(R"({"type":"object","properties":{
          "name":{"type":"string","minLength":1,"maxLength":12},
          "age":{"type":"integer"},
          "kind":{"enum":["king","queen","cat"]},
          "score":{"type":["number","null"]},
          "friends":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"object",
             "properties":{"name":{"type":"string"},"near":{"type":"boolean"}},
             "required":["name","near"],"additionalProperties":false}}},
          "required":["name","age","kind","friends"],"additionalProperties":false})"),
                            tokenizer);
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Parsed one = Parsed::parse(drawn(any, tokenizer, seed), nullptr, false);
    EXPECT_TRUE(one.is_object());
    const std::string text = drawn(person, tokenizer, seed);
    const Parsed all = Parsed::parse(text, nullptr, false);
    ASSERT_TRUE(all.is_object()) << text;
    texts.insert(text);
    for (const auto& [key, value] : all.items()) {
      EXPECT_TRUE((std::set<std::string>{"name", "age", "kind", "score", "friends"}).count(key));
    }
    ASSERT_TRUE(all.contains("name") && all["name"].is_string() && !all["name"].empty()) << text;
    ASSERT_TRUE(all.contains("age") && all["age"].is_number_integer()) << text;
    const std::string kind = all.value("kind", "");
    EXPECT_TRUE(kind == "king" || kind == "queen" || kind == "cat") << text;
    if (all.contains("score")) {
      EXPECT_TRUE(all["score"].is_number() || all["score"].is_null());
    }
    ASSERT_TRUE(all.contains("friends") && all["friends"].is_array()) << text;
    EXPECT_TRUE(all["friends"].size() >= 1 && all["friends"].size() <= 3) << text;
    for (const Parsed& one_friend : all["friends"]) {
      EXPECT_EQ(one_friend.size(), 2u);
      EXPECT_TRUE(one_friend.at("name").is_string() && one_friend.at("near").is_boolean()) << text;
    }
  }
  EXPECT_EQ(texts.size(), 30u);
}

// Schemas as zod and the AI SDK write them: bounds, formats, a record, a tuple and a union by a
// member.
TEST(TokenGrammar, EveryDrawKeepsWhatIsHeldOfAToolsSchema) {
  using Parsed = nlohmann::json;
  const Tokenizer& tokenizer = demo();
  const char* const kSchema = R"({"$schema":"http://json-schema.org/draft-07/schema#",
      "type":"object","properties":{
        "id":{"type":"integer","exclusiveMinimum":0,"maximum":9007199254740991},
        "age":{"type":"integer","minimum":17,"maximum":120},
        "below":{"type":"integer","minimum":-9007199254740991,"exclusiveMaximum":-5},
        "mail":{"type":"string","format":"email","pattern":"^.+@.+$"},
        "at":{"type":"string","format":"date-time"},
        "by":{"type":"object","propertyNames":{"type":"string"},
              "additionalProperties":{"type":"integer","minimum":0,"maximum":9}},
        "pair":{"type":"array","prefixItems":[{"type":"boolean"},{"type":"integer","minimum":3,
              "maximum":5}]},
        "old":{"type":"array","items":[{"type":"null"},{"enum":["a","b"]}],"minItems":2,
              "maxItems":2},
        "shape":{"oneOf":[
          {"type":"object","properties":{"kind":{"type":"string","const":"ring"},
             "r":{"type":"integer","minimum":1,"maximum":10}},"required":["kind","r"],
             "additionalProperties":false},
          {"type":"object","properties":{"kind":{"type":"string","const":"dot"}},
             "required":["kind"],"additionalProperties":false}]}},
      "required":["id","age","below","mail","at","by","pair","old","shape"],
      "additionalProperties":false})";
  EXPECT_EQ(loosened(kSchema), "format, pattern");
  const TokenGrammar grammar(schema(kSchema), tokenizer);
  std::set<std::string> kinds;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = drawn(grammar, tokenizer, seed);
    const Parsed all = Parsed::parse(text, nullptr, false);
    ASSERT_TRUE(all.is_object() && all.size() == 9) << text;
    const auto within = [&](const Parsed& value, int64_t low, int64_t high) {
      ASSERT_TRUE(value.is_number_integer()) << text;
      EXPECT_TRUE(value.get<int64_t>() >= low && value.get<int64_t>() <= high) << text;
    };
    constexpr int64_t kSafe = 9007199254740991;
    within(all["id"], 1, kSafe);
    within(all["age"], 17, 120);
    within(all["below"], -kSafe, -6);
    EXPECT_TRUE(all["mail"].is_string() && all["at"].is_string()) << text;
    for (const auto& [name, value] : all["by"].items()) within(value, 0, 9);
    ASSERT_TRUE(all["pair"].size() == 2 && all["pair"][0].is_boolean()) << text;
    within(all["pair"][1], 3, 5);
    ASSERT_TRUE(all["old"].size() == 2 && all["old"][0].is_null()) << text;
    EXPECT_TRUE(all["old"][1] == "a" || all["old"][1] == "b") << text;
    const Parsed& shape = all["shape"];
    const std::string kind = shape.value("kind", "");
    kinds.insert(kind);
    EXPECT_EQ(shape.size(), kind == "ring" ? 2u : 1u) << text;
    if (kind == "ring") within(shape["r"], 1, 10);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"dot", "ring"}));
}

TEST(TokenGrammar, NestingIsBoundedAndStillEnds) {
  const TokenGrammar grammar(json_object_grammar(), demo());
  TokenGrammar::State state = grammar.start();
  const auto push = [&](std::string_view text) {
    for (const int32_t id : demo().encode(text)) {
      const TokenGrammar::State next = grammar.after(state, id);
      if (next.empty()) return false;
      state = next;
    }
    return true;
  };
  ASSERT_TRUE(push("{\"a\":"));
  int depth = 0;
  while (depth < 1000 && push("[")) ++depth;
  EXPECT_GT(depth, 20);
  EXPECT_LT(depth, 1000);
  ASSERT_TRUE(push("1"));
  for (int i = 0; i < depth; ++i) ASSERT_TRUE(push("]"));
  ASSERT_TRUE(push("}"));
  EXPECT_TRUE(Grammar::must_end(state));
}

// A vocabulary of the demo's tokens and pairs of them.
Tokenizer larger(size_t size) {
  nlohmann::json vocab = nlohmann::json::parse(demo_file("vocab.json"));
  std::string merges = demo_file("merges.txt");
  std::vector<std::string> words;
  for (const auto& [word, id] : vocab.items()) {
    if (word != "<|endoftext|>") words.push_back(word);
  }
  std::mt19937 random(1);
  while (vocab.size() < size) {
    const std::string &left = words[random() % words.size()],
                      &right = words[random() % words.size()];
    if (vocab.contains(left + right)) continue;
    vocab[left + right] = vocab.size();
    merges += left + " " + right + "\n";
  }
  return Tokenizer::from_vocab_merges(vocab.dump(), merges);
}

// The time of this thread's processor, which others' work beside it does not count in.
double thread_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// A place of 2^15 stacks, each in a text of its own length: what is kept is bounded while a mask is
// made, the mask is the same whatever was kept, and a text still ends.
TEST(TokenGrammar, PlacesOfManyAlternativesAreBounded) {
  std::string defs;
  for (int i = 15; i >= 0; --i) {
    const std::string next =
        cat(R"({"$ref":"#/$defs/a)", i + 1, R"("},{"$ref":"#/$defs/b)", i + 1, "\"}");
    for (const char* name : {"a", "b"}) {
      defs += cat(i == 15 && *name == 'a' ? "\"" : ",\"", name, i, "\":",
                  i == 15 ? R"({"type":"string","maxLength":60})"
                          : cat(R"({"type":"object","required":["a"],"properties":{"a":{"anyOf":[)",
                                next, "]}}}"));
    }
  }
  const Json wide = parsed(cat(R"({"$ref":"#/$defs/a0","$defs":{)", defs, "}}"));
  const Tokenizer tokenizer = larger(151'936);
  const TokenGrammar grammar(json_schema_grammar(wide).grammar, tokenizer);
  TokenGrammar::State state = grammar.start();
  double worst = 0;
  size_t kept = 0;
  std::string text;
  for (int i = 0; i < 15; ++i) text += "{\"a\":";
  text += "\"abc\"" + std::string(15, '}');
  for (const char c : text) {
    const double start = thread_ms();
    const auto mask = grammar.allowed(state);
    worst = std::max(worst, thread_ms() - start);
    kept = std::max(kept, grammar.kept_bytes());
    // One that has kept nothing before.
    const TokenGrammar fresh(json_schema_grammar(wide).grammar, tokenizer);
    if (c == 'b' || c == '}') {
      EXPECT_EQ(*fresh.allowed(state), *mask) << "before " << c;
    }
    const int32_t id = tokenizer.encode(std::string(1, c)).at(0);
    EXPECT_EQ((*mask)[static_cast<size_t>(id)], 1) << "before " << c;
    state = grammar.after_byte(state, c);
    ASSERT_FALSE(state.empty()) << "behind " << c;
  }
  EXPECT_TRUE(Grammar::must_end(state));
  EXPECT_LT(kept, TokenGrammar::kMostBytes + (1 << 20));
  std::cout << "places of many alternatives: " << kept << " bytes, a mask in " << worst
            << " ms at most\n";
}

// Prints what a mask costs: the first of a state and one that is known.
TEST(TokenGrammar, AMaskTakesLittleTime) {
  const auto ms = [](double since) { return thread_ms() - since; };
  for (const size_t size : {50'257u, 151'936u}) {
    const Tokenizer tokenizer = larger(size);
    double start = thread_ms();
    tokenizer.by_bytes();
    const double order = ms(start);
    const auto time = [&](const char* what, Grammar rules, const char* text) {
      const TokenGrammar grammar(std::move(rules), tokenizer);
      TokenGrammar::State state = grammar.start();
      double worst = 0, sum = 0, known = 0;
      int count = 0;
      for (const int32_t id : tokenizer.encode(text)) {
        start = thread_ms();
        grammar.allowed(state);
        const double took = ms(start);
        worst = std::max(worst, took);
        sum += took;
        ++count;
        start = thread_ms();
        grammar.allowed(state);
        known = std::max(known, ms(start));
        state = grammar.after(state, id);
        ASSERT_FALSE(state.empty());
      }
      std::cout << size << " ids, " << what << ": order " << order << " ms once; mask "
                << sum / count << " ms on average of " << count << ", at most " << worst
                << " ms, known " << known << " ms\n";
      EXPECT_LT(known, 5);
      EXPECT_LT(sum / count, 100);
    };
    time("any object", json_object_grammar(),
         R"({"name": "The old king", "age":71, "of":[{"a":null},1.5e3]})");
    // Each character of a bounded text is a place of its own.
    time("a schema", schema(R"({"type":"object","properties":{
             "name":{"type":"string","maxLength":200},"kind":{"enum":["king","queen","cat"]},
             "age":{"type":"integer"}},"required":["name","kind","age"]})"),
         R"({"name":"The old king and the queen of the sea","kind":"king","age":71})");
  }
}

}  // namespace
}  // namespace split
