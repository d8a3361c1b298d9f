// JSON against nlohmann's library, by which every answer was written before there was a value of
// our own.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/json.h"

namespace split {
namespace {

using Oracle = nlohmann::json;

std::string error_of(std::string_view text, int max_depth = 8) {
  try {
    parse_json(text, max_depth, "the text");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "none";
}

void expect_same(const Json& json, const Oracle& oracle) {
  using Handler = Oracle::error_handler_t;
  EXPECT_EQ(json.dump(), oracle.dump(-1, ' ', false, Handler::replace));
  EXPECT_EQ(json.dump({.ascii = true}), oracle.dump(-1, ' ', true, Handler::replace));
  EXPECT_EQ(json.dump({.indent = 1}), oracle.dump(1, ' ', false, Handler::replace));
  EXPECT_EQ(json.dump({.indent = 0}), oracle.dump(0, ' ', false, Handler::replace));
}

std::string random_text(std::mt19937& random, bool any_bytes) {
  static constexpr const char* kPieces[] = {"a",    "Zz", "\"",     "\\", "\n", "\x01",
                                            "\x7f", "é",  "\u2028", "😀",  "/"};
  std::string text;
  for (uint32_t n = random() % 6; n > 0; --n) {
    if (any_bytes && random() % 2 == 0) {
      text += static_cast<char>(random());
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

Oracle random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(uint64_t{random()} << 32 | random());
    case 3:
      return uint64_t{random()} << 32 | random();
    case 4: {
      const auto value = std::bit_cast<double>(uint64_t{random()} << 32 | random());
      return std::isfinite(value) ? value : 0.5;
    }
    case 5:
      return static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 8;
    case 6:
      return random_text(random, false);
    case 7: {
      Oracle list = Oracle::array();
      for (uint32_t n = random() % 5; n > 0; --n) list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      Oracle object = Oracle::object();
      for (uint32_t n = random() % 5; n > 0; --n) {
        object[random_text(random, false)] = random_value(random, depth - 1);
      }
      return object;
    }
  }
}

TEST(Json, WritesWhatItReadsAsTheLibraryDoes) {
  for (const char* text : {"null",
                           "true",
                           "false",
                           "0",
                           "-0",
                           "-0.0",
                           "1",
                           "-1",
                           "1.0",
                           "1e5",
                           "1e-5",
                           "1e15",
                           "1e16",
                           "1e22",
                           "123456789012345678",
                           "9223372036854775807",
                           "9223372036854775808",
                           "18446744073709551615",
                           "18446744073709551616",
                           "-9223372036854775808",
                           "-9223372036854775809",
                           "5e-324",
                           "1.7976931348623157e308",
                           "0.1",
                           "[]",
                           "{}",
                           "[[],{}]",
                           R"({"b":1,"a":[1,{"c":null}],"":0})",
                           R"("\u00e9\ud83d\ude00\u0000\b\f\n\r\t\"\\\/")",
                           " [ 1 , 2 ] ",
                           "\xef\xbb\xbf[1]"}) {
    SCOPED_TRACE(text);
    expect_same(parse_json(text, 8, "the text"), Oracle::parse(text));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const Oracle oracle = random_value(random, 4);
    const std::string text = oracle.dump(i % 3 - 1, ' ', i % 2 == 0);
    SCOPED_TRACE(text);
    const Json json = parse_json(text, 8, "the text");
    expect_same(json, Oracle::parse(text));
    EXPECT_TRUE(json == parse_json(text, 8, "the text"));
  }
}

TEST(Json, WritesAnyBytesAsTheLibraryDoes) {
  std::mt19937 random(11);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random_text(random, true), name = random_text(random, true);
    expect_same(Json{{name, Json::array({text})}}, Oracle{{name, Oracle::array({text})}});
  }
  EXPECT_THROW((void)Json("a\xff").dump({.refuse_bytes = true}), Error);
  EXPECT_EQ(Json("é").dump({.refuse_bytes = true}), "\"é\"");
}

TEST(Json, WritesNumbersThatProgramsMake) {
  expect_same(Json::array({-3, 3, 3u, int64_t{-1} << 62, uint64_t{1} << 63, 0.8f, 1e100,
                           std::nan(""), -HUGE_VAL, true}),
              Oracle::array({-3, 3, 3u, int64_t{-1} << 62, uint64_t{1} << 63, 0.8f, 1e100,
                             std::nan(""), -HUGE_VAL, true}));
  const std::vector<std::string> texts = {"x", "y"};
  const std::vector<int32_t> ids = {7, -1};
  expect_same(Json{{"texts", texts}, {"ids", std::span<const int32_t>(ids)}},
              Oracle{{"texts", texts}, {"ids", ids}});
}

TEST(Json, RefusesWhatIsNotStrictlyJson) {
  for (const char* text :
       {"",       " ",     "nul", "[1,]", "{\"a\":1,}", "[1] 2",    "'a'",      "01",
        "1.",     ".5",    "+1",  "NaN",  "1e999",      "-1e999",   "\"\xff\"", "\"\\ud800\"",
        "\"\n\"", "{1:2}", "[1",  "\"a",  "/**/1",      "{\"a\" 1}"}) {
    EXPECT_TRUE(error_of(text).starts_with("the text is not valid JSON at byte "))
        << text << ": " << error_of(text);
  }
  EXPECT_EQ(error_of(R"({"a":{"b":1,"c":[],"b":2}})"), "the text has the key 'b' twice");
  EXPECT_EQ(error_of(R"({"a":1,"\u0061":2})"), "the text has the key 'a' twice");
  EXPECT_EQ(error_of(R"([{"a":1},{"a":1}])"), "none");
  EXPECT_EQ(error_of("[[[]]]", 3), "none");
  EXPECT_EQ(error_of("[[[[]]]]", 3), "the text nests deeper than 3 objects and arrays");
  EXPECT_EQ(error_of("[{\"a\":[{}]}]", 3), "the text nests deeper than 3 objects and arrays");
}

TEST(Json, KeepsTheOrderOfKeys) {
  Json json = parse_json(R"({"b":1,"a":2,"c":3})", 1, "the text");
  json["0"] = 4;
  json["a"] = 5;
  std::string names;
  for (const auto& [name, value] : json.members()) names += name;
  EXPECT_EQ(names, "bac0");
  EXPECT_EQ(json.dump(), R"({"0":4,"a":5,"b":1,"c":3})");
}

TEST(Json, CopiesAreDeepAndMovesLeaveNull) {
  Json first = {{"list", Json::array({1, {{"x", "y"}}})}};
  Json second = first;
  second["list"].push_back("more");
  EXPECT_EQ(first.dump(), R"({"list":[1,{"x":"y"}]})");
  EXPECT_EQ(second.dump(), R"({"list":[1,{"x":"y"},"more"]})");
  const Json third = std::move(second);
  EXPECT_TRUE(second.is_null());  // NOLINT: that is what it is to be
  EXPECT_FALSE(third == first);
  first = third;
  EXPECT_TRUE(first == third);
  first = first["list"];  // a part of itself
  EXPECT_EQ(first.dump(), R"([1,{"x":"y"},"more"])");
}

TEST(Json, ComparesByValue) {
  EXPECT_EQ(Json(5), Json(5u));
  EXPECT_EQ(Json(0), Json(0.0));
  EXPECT_FALSE(Json(-1) == Json(UINT64_MAX));
  EXPECT_FALSE(Json(1) == Json(true));
  EXPECT_FALSE(Json() == Json(false));
  EXPECT_TRUE(Json("BPE") == "BPE");
  EXPECT_TRUE((Json{{"a", 1}, {"b", 2}}) == (Json{{"b", 2}, {"a", 1}}));
  EXPECT_FALSE((Json{{"a", 1}, {"b", 2}}) == (Json{{"b", 2}, {"c", 1}}));
}

TEST(Json, ReadersRefuseAnotherShape) {
  const Json json = {{"a", 1}, {"b", Json::array({2.5})}};
  EXPECT_EQ(json["a"].get<double>(), 1);
  EXPECT_EQ(json["b"][0].get<int>(), 2);
  EXPECT_EQ(json.find("c"), nullptr);
  const auto refused = [](const auto& read) {
    try {
      (void)read();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kInput;
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { return json.at("c").is_null(); }));
  EXPECT_TRUE(refused([&] { return json["b"][1].is_null(); }));
  EXPECT_TRUE(refused([&] { return json[0].is_null(); }));
  EXPECT_TRUE(refused([&] { return json["a"].at("x").is_null(); }));
  EXPECT_TRUE(refused([&] { return json["a"].text().size(); }));
  EXPECT_TRUE(refused([&] { return json["a"].get<bool>(); }));
  EXPECT_TRUE(refused([&] { return json["b"].get<int>(); }));
  EXPECT_TRUE(refused([&] { return json["a"].begin(); }));
}

}  // namespace
}  // namespace split
