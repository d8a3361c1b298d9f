// Calls that have to come, of tools that are drawn too: at temperature 1, in each family's form,
// all parse and are of their tool's schema.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "calls/tool_cases.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

using Schema = nlohmann::ordered_json;

// Schemas of what a grammar holds.
class HeldSchemas {
 public:
  explicit HeldSchemas(unsigned seed) : random_(seed) {}

  Schema object(size_t depth) {
    Schema made = {
        {"type", "object"}, {"properties", Schema::object()}, {"required", Schema::array()}};
    for (size_t left = below(4); left > 0; --left) {
      const std::string name = cat("abcdefgh"[below(8)], left);
      made["properties"][name] = any(depth);
      if (below(2) == 0) made["required"].push_back(name);
    }
    made["additionalProperties"] = false;
    return made;
  }
  size_t below(size_t most) { return random_() % most; }

 private:
  Schema any(size_t depth) {
    const auto low = static_cast<int>(below(2000)) - 1000;
    switch (below(depth == 0 ? 6 : 9)) {
      case 0:
        return {{"type", "string"}, {"maxLength", below(20)}};
      case 1:
        return {{"type", "string"}};
      case 2:
        return {{"enum", {"red", "a \"b\"\n", cat("x", below(9)), " </p "}}};
      case 3:
        return {
            {"type", "integer"}, {"minimum", low}, {"maximum", low + static_cast<int>(below(500))}};
      case 4:
        return {{"type", {"number", "null"}}};
      case 5:
        return {{"type", "boolean"}};
      case 6:
        return {
            {"type", "array"}, {"items", any(depth - 1)}, {"minItems", below(3)}, {"maxItems", 3}};
      case 7:
        return {{"anyOf", {{{"type", "boolean"}}, object(depth - 1)}}};
      default:
        return object(depth - 1);
    }
  }
  std::mt19937 random_;
};

// Whether a value is of such a schema.
bool is_of(const Schema& schema, const nlohmann::json& value, bool lengths) {
  const auto each = [&](const Schema& one) { return is_of(one, value, lengths); };
  if (schema.contains("anyOf")) return std::ranges::any_of(schema["anyOf"], each);
  if (schema.contains("enum")) {
    return std::ranges::any_of(schema["enum"],
                               [&](const Schema& one) { return value == one.get<std::string>(); });
  }
  if (schema["type"].is_array()) return value.is_number() || value.is_null();
  const std::string type = schema["type"];
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") {
    return value.is_number_integer() && value >= schema["minimum"].get<int>() &&
           value <= schema["maximum"].get<int>();
  }
  if (type == "string") {
    const auto text = value.is_string() ? value.get<std::string>() : "";
    const auto characters = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
    return value.is_string() && (!lengths || !schema.contains("maxLength") ||
                                 characters <= schema["maxLength"].get<int>());
  }
  if (type == "array") {
    return value.is_array() && value.size() >= schema["minItems"].get<size_t>() &&
           value.size() <= 3 && std::ranges::all_of(value, [&](const nlohmann::json& one) {
             return is_of(schema["items"], one, lengths);
           });
  }
  const Schema& properties = schema["properties"];
  return value.is_object() &&
         std::ranges::all_of(
             schema["required"],
             [&](const Schema& name) { return value.contains(name.get<std::string>()); }) &&
         std::ranges::all_of(value.items(), [&](const auto& member) {
           return properties.contains(member.key()) &&
                  is_of(properties[member.key()], member.value(), lengths);
         });
}

// One answer, of tokens drawn at temperature 1 from noise in which what closes is likelier.
SaidParts drawn(const TextForm& form, const Tokenizer& tokenizer, std::span<const float> noise,
                uint64_t seed, bool& ended) {
  const AnswerFormat& format = form.form().format;
  const bool tagged = format.calls == AnswerFormat::Calls::kTagged, quoted = !format.quote.empty();
  TextForm::State state = form.start();
  SaidParts said;
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto take = [&](int32_t id) {
    TextForm::Pieces pieces;
    form.follow(state, id, pieces);
    said.add(pieces);
  };
  const auto take_all = [&](std::string_view text) {
    for (const int32_t id : tokenizer.encode(text)) {
      const auto mask = form.allowed(state);
      if (mask != nullptr && (*mask)[static_cast<size_t>(id)] == 0) return;
      take(id);
    }
  };
  for (uint64_t at = 0; at < 600 && !state.over(); ++at) {
    const auto mask = form.allowed(state);
    if (mask != nullptr && form.can_end(state) && random() % 4 == 0) break;
    if (mask == nullptr) {  // a thought
      take_all(form.form().format.thought.closes);
    } else if (tagged && random() % 6 == 0) {  // a text ends by its tag alone
      take_all("\n</parameter>");
    } else if (quoted && random() % 6 == 0) {
      take_all(format.quote);
    } else {
      take(sample(noise, {}, {.temperature = 1, .top_p = 1, .seed = seed}, at, 0, *mask));
    }
  }
  ended = state.over() || form.can_end(state);
  return said;
}

TEST(RandomCalls, OfRandomToolsAreOfTheirSchemas) {
  const size_t most = std::getenv("SPLIT_LONG") != nullptr ? 10'000 : 1'000;
  size_t calls = 0, sets = 0;
  const char* const names[] = {"qwen2", "qwen3",  "llama3", "mistral",
                               "gemma", "zephyr", "tagged", "quoted"};
  for (unsigned seed = 0; calls < most && sets < most; ++seed, ++sets) {
    ToolCase one{{{"template", names[seed % std::size(names)]}, {"tool_choice", "required"}}};
    SCOPED_TRACE(cat(one.text("template"), " ", seed));
    HeldSchemas schemas(seed);
    std::map<std::string, Schema> tools;
    for (size_t left = 1 + schemas.below(4); left > 0; --left) {
      const std::string name = cat(schemas.below(2) == 0 ? "get " : "a\"b_", left);
      tools[name] = schemas.object(2);
      one.json["tools"].push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"parameters", tools[name]}}}});
    }
    const auto tokenizer = load_tokenizer(one.tokenizer_dir());
    const ChatTemplate chat = one.chat_template();
    const TextForm form(one.form(AnswerFormat::of(&chat)), *tokenizer);
    std::vector<float> noise(static_cast<size_t>(tokenizer->size()));
    std::mt19937 random(seed);
    for (size_t id = 0; id < noise.size(); ++id) {
      const std::string_view bytes = tokenizer->token_bytes(static_cast<int32_t>(id));
      const bool closes = bytes.find_first_of("\"]}") != bytes.npos;
      noise[id] = static_cast<float>(random() % 1000) / 1000 + (closes ? 5.0f : 0.0f);
    }
    for (uint64_t draw = 0; draw < 20; ++draw) {
      bool ended = false;
      const SaidParts said = drawn(form, *tokenizer, noise, seed * 100 + draw, ended);
      if (!ended) continue;  // a long text
      ASSERT_FALSE(said.calls.empty());
      EXPECT_EQ(said.content, "");
      for (const auto& [tool, arguments] : said.calls) {
        ++calls;
        ASSERT_TRUE(tools.contains(tool)) << tool;
        const nlohmann::json parsed = nlohmann::json::parse(arguments, nullptr, false);
        EXPECT_TRUE(is_of(tools[tool], parsed, !one.has_free_texts()))
            << arguments << "\nis not of\n"
            << tools[tool];
      }
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GE(calls, most);
}

}  // namespace
}  // namespace split::test
