// Bounds of a form: the cost of its tools' schemas, whatever these are, and its calls.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <optional>
#include <random>

#include "calls/tool_cases.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

using Dict = nlohmann::ordered_json;

// Schemas that somebody might send, to use tools or to do harm.
class Schemas {
 public:
  explicit Schemas(unsigned seed) : random_(seed) {}

  std::string text() {
    left_ = 200;
    return of(below(5) == 0 ? 20 : 3).dump();
  }
  size_t below(size_t most) { return random_() % most; }

 private:
  Dict of(size_t depth) {
    Dict schema = Dict::object();
    if (left_ == 0) return schema;
    --left_;
    for (size_t left = below(5) + 1; left > 0; --left) add(schema, depth);
    return schema;
  }
  Dict list(size_t depth) {
    Dict all = Dict::array();
    for (size_t left = below(4) + 1; left > 0; --left) all.push_back(of(depth));
    return all;
  }
  Dict bound() {
    constexpr std::array<double, 7> kBounds = {-1,          0, 3, 2.5, 1e6, 9007199254740993.0,
                                               1.8446744e19};
    if (below(8) == 0) return UINT64_MAX;
    return kBounds.at(below(kBounds.size()));
  }
  Dict name() { return std::string(below(9) == 0 ? below(300) : below(8), "ab\"\n"[below(4)]); }
  Dict one_of(std::initializer_list<const char*> texts) {
    return texts.begin()[below(texts.size())];
  }
  Dict many_names() {
    Dict all = Dict::array();
    for (size_t left = below(40) == 0 ? 700 : below(6) + 1; left > 0; --left) all.push_back(name());
    return all;
  }
  void add(Dict& schema, size_t depth) {
    const size_t next = depth == 0 ? 0 : depth - 1;
    switch (below(depth == 0 ? 10 : 18)) {
      case 0:
        schema["type"] = one_of({"object", "string", "array", "integer", "number", "null", "cow"});
        break;
      case 1:
        schema[one_of({"minLength", "maxLength", "minItems", "maxItems", "minProperties"})] =
            bound();
        break;
      case 2:
        schema[one_of({"minimum", "maximum", "exclusiveMinimum", "multipleOf"})] = bound();
        break;
      case 3:
        schema["enum"] = many_names();
        break;
      case 4:
        schema["$ref"] =
            one_of({"#", "#/$defs/a", "#/$defs/b", "#/properties/p", "#/x/y", "other"});
        break;
      case 5:
        schema["required"] = many_names();
        break;
      case 6:
        schema[one_of({"pattern", "format", "$id", "description"})] = name();
        break;
      case 7:
        schema["const"] = below(2) == 0 ? name() : Dict(nullptr);
        break;
      case 8:
        schema[one_of({"properties", "items", "anyOf", "type", "$ref"})] =
            bound();  // of no such kind
        break;
      case 9:
        schema["type"] = Dict::array({"string", "null", "object"});
        break;
      case 10:
      case 11:
      case 12:
        schema["properties"] = Dict::object();
        for (size_t left = below(20) == 0 ? 200 : below(4) + 1; left > 0; --left) {
          schema["properties"][left == 1 ? Dict("p") : name()] = of(left > 4 ? 0 : next);
        }
        break;
      case 13:
        schema[one_of({"items", "additionalProperties", "not", "if", "contains"})] = of(next);
        break;
      case 14:
        schema[one_of({"anyOf", "oneOf", "allOf", "prefixItems"})] = list(next);
        break;
      case 15:
        schema["$defs"] = {{"a", of(next)}, {"b", {{"$ref", "#/$defs/a"}}}};
        break;
      case 16:
        schema["items"] = list(next);
        break;
      default:
        schema["propertyNames"] = of(next);
    }
  }

  std::mt19937 random_;
  size_t left_ = 0;  // schemas of one text
};

ToolCase family(const char* name) { return ToolCase{{{"template", name}}}; }

AnswerForm form_of(std::vector<AnswerForm::Tool> tools, const char* name = "qwen2") {
  const ChatTemplate chat = family(name).chat_template();
  AnswerForm form;
  form.format = AnswerFormat::of(&chat);
  form.choice = AnswerForm::Choice::kRequired;
  form.tools = std::move(tools);
  return form;
}

// Runs it with the stack that a request's thread has (http::Server::Options), or several times that
// where a sanitizer makes frames larger, as the server does.
void on_small_stack(const std::function<void()>& run) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr size_t kStack = 4 << 20;
#else
  constexpr size_t kStack = 256 << 10;
#endif
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread{};
  const auto body = [](void* of) -> void* {
    (*static_cast<const std::function<void()>*>(of))();
    return nullptr;
  };
  ASSERT_EQ(
      pthread_create(&thread, &attributes, body, const_cast<void*>(static_cast<const void*>(&run))),
      0);
  pthread_join(thread, nullptr);
}

// The time of this thread's processor.
double thread_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// The form of a request, paid for out of 16 MiB, and a text of tokens drawn from all that may come.
struct Drawn {
  size_t loosened = 0;
  uint64_t bytes = 0;                   // of the grammar
  double compiled_ms = 0, mask_ms = 0;  // the longest one
};
Drawn draw(const AnswerForm& asked, const Tokenizer& tokenizer, unsigned seed, size_t most = 60) {
  Drawn drawn;
  double since = thread_ms();
  const auto ms = [&] {
    const double now = thread_ms();
    return now - std::exchange(since, now);
  };
  std::mt19937 random(seed);
  MemoryBudget budget(16 << 20);
  MemoryShare memory(&budget);
  std::optional<TextForm> form;
  EXPECT_NO_THROW(form.emplace(asked, tokenizer, false, &memory));
  if (!form) return drawn;
  drawn.compiled_ms = ms();
  drawn.bytes = memory.bytes();
  drawn.loosened = form->loosened().size();
  TextForm::State state = form->start();
  for (size_t tokens = 0; tokens < most && !state.over(); ++tokens) {
    ms();
    const auto mask = form->allowed(state);
    drawn.mask_ms = std::max(drawn.mask_ms, ms());
    EXPECT_TRUE(mask);
    if (!mask) break;
    std::vector<int32_t> may;
    for (size_t id = 0; id < mask->size(); ++id) {
      if ((*mask)[id] != 0) may.push_back(static_cast<int32_t>(id));
    }
    if (may.empty()) {
      EXPECT_TRUE(form->can_end(state));
      break;
    }
    TextForm::Pieces pieces;
    EXPECT_NO_THROW(form->follow(state, may[random() % may.size()], pieces));
  }
  return drawn;
}

// A request has 1 to 128 tools. A part that cannot be held admits more: nothing is refused, and
// there is always a token that may come.
TEST(FormBounds, SchemasOfAnyKindAreTakenAndPaidFor) {
  const auto tokenizer = load_tokenizer(family("qwen2").tokenizer_dir());
  const size_t most = std::getenv("SPLIT_LONG") != nullptr ? 10'000 : 1'000;
  size_t loosened = 0;
  unsigned seed = 0;
  double compiled = 0, mask = 0;
  uint64_t bytes = 0;
  for (size_t made = 0; made < most && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Schemas schemas(seed);
    std::vector<AnswerForm::Tool> tools;
    size_t bytes_left = AnswerForm::kMostBytes;
    for (size_t left = seed % 16 == 0 ? 128 : schemas.below(6) + 1; left > 0; --left) {
      std::string schema = schemas.text();
      if (schema.size() > bytes_left) break;
      bytes_left -= schema.size();
      tools.push_back({cat("tool_", left), std::move(schema)});
    }
    made += tools.size();
    on_small_stack([&] {
      const Drawn drawn =
          draw(form_of(tools, seed % 4 == 1 ? "tagged" : "qwen2"), *tokenizer, seed);
      loosened += drawn.loosened;
      compiled = std::max(compiled, drawn.compiled_ms);
      mask = std::max(mask, drawn.mask_ms);
      bytes = std::max(bytes, drawn.bytes);
    });
  }
  EXPECT_GT(loosened, most / 10);
  std::cout << most << " schemas: a request's compiled in " << compiled << " ms and " << bytes
            << " bytes at most, a mask in " << mask << " ms\n";
}

// Schemas that look small and are not.
struct Hostile {
  const char* what;
  std::string schema;
};
std::vector<Hostile> hostile_schemas() {
  const auto repeated = [](size_t count, const std::function<std::string(size_t)>& one) {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += cat(i == 0 ? "" : ",", one(i));
    return all;
  };
  const auto numbers = [&](size_t count, size_t from) {
    return cat("{\"enum\":[", repeated(count, [&](size_t i) { return cat(from + i); }), "]}");
  };
  const auto argument = [](const std::string& schema, const std::string& defs = "") {
    return cat(R"({"properties":{"x":)", schema, R"(},"required":["x"],"$defs":{)", defs, "}}");
  };
  const auto chain = [&](const std::string& around, size_t count, const std::string& end) {
    return repeated(count,
                    [&](size_t i) {
                      const std::string next = cat(R"({"$ref":"#/$defs/a)", i + 1, "\"}");
                      std::string text = around;
                      for (size_t at = text.find('@'); at != text.npos; at = text.find('@'))
                        text.replace(at, 1, next);
                      return cat("\"a", i, "\":", text);
                    }) +
           cat(",\"a", count, "\":", end);
  };
  const std::string first = R"({"$ref":"#/$defs/a0"})";
  std::string twenty =
      R"({"anyOf":[)" + repeated(20, [](size_t) { return std::string("@"); }) + "]}";
  std::string deep = "@";
  for (int i = 0; i < 18; ++i) deep = cat(R"({"properties":{"d":{"items":)", deep, "}}}");
  std::string nested = R"({"type":"string"})";
  for (int i = 0; i < 28; ++i)
    nested = cat(R"({"properties":{"d":)", nested, R"(},"required":["d"]})");
  const std::string object = R"({"type":"object","required":["m"],"properties":{"m":)";
  return {
      {"two long lists that nothing shares",
       argument(cat("{\"oneOf\":[", numbers(60'000, 0), ",", numbers(60'000, 100'000), "]}"))},
      {"many short lists",
       argument(cat("{\"oneOf\":[", repeated(400, [&](size_t i) { return numbers(200, 1000 * i); }),
                    "]}"))},
      {"objects that are told apart by themselves",
       argument(R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]})",
                cat("\"a\":", object, R"({"$ref":"#/$defs/a"}}},"b":)", object,
                    R"({"$ref":"#/$defs/b"}}})"))},
      {"alternatives of alternatives", argument(first, chain(twenty, 15, R"({"type":"string"})"))},
      {"objects behind them, alike",
       argument(first,
                chain(R"({"type":"object","required":["a"],"properties":{"a":{"anyOf":[@,@]}}})",
                      15, R"({"type":"string","maxLength":30})"))},
      {"lists around references", argument(first, chain(deep, 15, R"({"type":"string"})"))},
      {"references among many names",
       argument(
           cat("{\"oneOf\":[",
               repeated(500,
                        [](size_t i) { return cat(R"({"$ref":"#/$defs/n)", 30'000 + i, "\"}"); }),
               "]}"),
           repeated(31'000, [](size_t i) { return cat("\"n", i, R"(":{"const":)", i, "}"); }))},
      {"one large schema by many names",
       argument(
           cat("{\"anyOf\":[",
               repeated(60,
                        [](size_t i) {  // the byte behind the mark is not looked at
                          return cat(R"({"$ref":"#)",
                                     static_cast<char>(i < 30 ? 'A' + i % 26 : 'a' + i % 26),
                                     R"($defs/a"})");
                        }),
               "]}"),
           cat("\"a\":{", repeated(60'000, [](size_t i) { return cat("\"k", i, "\":1"); }), "}"))},
      {"texts of many lengths",
       argument(cat(
           "{\"anyOf\":[",
           repeated(250,
                    [](size_t i) { return cat(R"({"type":"string","maxLength":)", i + 1, "}"); }),
           "]}"))},
      {"long lists of long lists",
       argument(R"({"type":"array","minItems":256,"items":{"type":"array","minItems":256,"items":
                {"type":"array","minItems":256,"items":{"type":"string","minLength":1024}}}})")},
      {"more than there is",
       argument(R"({"type":"array","maxItems":18446744073709551616,"minItems":1e300,
                "items":{"minLength":9223372036854775807,"type":"string"}})")},
      {"optional members",
       cat(R"({"properties":{)",
           repeated(511, [](size_t i) { return cat("\"", i, R"(":{"type":"integer"})"); }), "}}")},
      {"objects in objects", nested},
      {"a name of many bytes", cat(R"({"properties":{")", std::string(300'000, 'a'), R"(":{}}})")},
      {"types, many",
       argument(cat("{\"type\":[",
                    repeated(50'000, [](size_t) { return std::string("\"array\""); }), "]}"))},
      {"a reference that is none", R"({"$ref":7})"},
      {"no object", "[1,2]"},
      {"a circle", R"({"$ref":"#"})"},
      {"parts of no kind", R"({"properties":7,"required":{"a":1},"type":{}})"},
  };
}

TEST(FormBounds, HostileSchemasTakeNoMore) {
  const auto tokenizer = load_tokenizer(family("qwen2").tokenizer_dir());
  for (const char* name : {"qwen2", "tagged"}) {
    for (const Hostile& hostile : hostile_schemas()) {
      for (const size_t count : {1, 128}) {
        SCOPED_TRACE(cat(name, ": ", hostile.what, ", ", count));
        if (hostile.schema.size() * count > AnswerForm::kMostBytes) continue;
        std::vector<AnswerForm::Tool> tools;
        for (size_t i = 0; i < count; ++i) tools.push_back({cat("tool_", i), hostile.schema});
        on_small_stack([&] {
          const Drawn drawn = draw(form_of(tools, name), *tokenizer, 5, 100);
          std::cout << name << ", " << count << " x " << hostile.what << ": " << drawn.compiled_ms
                    << " ms, " << drawn.bytes << " bytes, masks " << drawn.mask_ms << " ms\n";
        });
      }
    }
  }
}

TEST(FormBounds, AnAnswerHasSoManyCallsAtMost) {
  const auto tokenizer = load_tokenizer(family("qwen2").tokenizer_dir());
  AnswerForm asked = form_of({{"get", R"({"additionalProperties":true})"}});
  asked.choice = AnswerForm::Choice::kAuto;
  const TextForm form(asked, *tokenizer);
  TextForm::State state = form.start();
  SaidParts said;
  size_t calls = 0;
  for (; calls < 200 && !state.over(); ++calls) {
    TextForm::Pieces pieces;
    const std::string call =
        cat("<tool_call>\n{\"name\": \"get\", \"arguments\": {\"n\": ", calls, "}}\n</tool_call>");
    form.follow(state, call, false, pieces);
    said.add(pieces);
  }
  EXPECT_EQ(calls, TextForm::kMostCalls);
  ASSERT_EQ(said.calls.size(), TextForm::kMostCalls);
  EXPECT_EQ(said.calls.back().second, "{\"n\": 127}");
  EXPECT_EQ(said.content, "");
}

}  // namespace
}  // namespace split::test
