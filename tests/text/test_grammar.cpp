// Answers of a grammar: which tokens can come next, and that whatever is drawn of them parses and
// is as its schema says (test_json_grammar.cpp: what JSON of a schema is).
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/file.h"
#include "text/grammar_testing.h"
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
        "mail":{"type":"string","format":"email"},
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
  EXPECT_EQ(loosened(kSchema), "");
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
