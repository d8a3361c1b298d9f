// text/tokenizer: what it makes of text, and text of it.
#include <gtest/gtest.h>

#include <limits>

#include "text/pretokenize.h"
#include "text_testing.h"

namespace split {
namespace {

// Made by tokenizers 0.23.2; see tests/golden/README.md.
void check_golden(const Tokenizer& tokenizer, const char* file) {
  const Json golden = Json::parse(slurp(kSource / "tests/golden" / file));
  ASSERT_EQ(golden["strings"].size(), 107u);
  EXPECT_EQ(tokenizer.size(), golden["vocab_size"].get<int>());
  EXPECT_EQ(tokenizer.end_of_text(), golden["endoftext"].get<int>());
  for (const Json& entry : golden["strings"]) {
    const auto text = entry["text"].get<std::string>();
    ASSERT_EQ(to_hex(as_bytes_of(text)), entry["utf8_hex"].get<std::string>());
    const auto ids = entry["ids"].get<Ids>();
    const auto plain = entry.contains("ids_plain") ? entry["ids_plain"].get<Ids>() : ids;
    EXPECT_EQ(tokenizer.encode(text), ids) << entry["text"];
    EXPECT_EQ(tokenizer.encode(text, false), plain) << entry["text"];
    EXPECT_EQ(tokenizer.decode(ids), text) << entry["text"];
    EXPECT_EQ(tokenizer.decode(plain), text) << entry["text"];
  }
}

TEST(Tokenizer, EncodesTheGoldensOfTheDemoModel) { check_golden(demo(), "tokenizer-demo.json"); }

TEST(Tokenizer, EncodesTheGoldensByTokenizerJson) {
  const auto tokenizer =
      Tokenizer::from_tokenizer_json(slurp(kSource / "weights/demo/tokenizer.json"));
  check_golden(tokenizer, "tokenizer-demo.json");
  for (int32_t id = 0; id < demo().size(); ++id) {
    ASSERT_EQ(tokenizer.token_bytes(id), demo().token_bytes(id));
  }
}

TEST(Tokenizer, EncodesTheGoldensOfGpt2) {
  const fs::path dir = kSource / "../shared/gpt2-tokenizer";
  if (!fs::exists(dir)) {
    std::cout << "GPT-2's own tokenizer is not beside the checkout: nothing checked\n";
    return;
  }
  const auto tokenizer = load_tokenizer(dir);
  ASSERT_TRUE(tokenizer.has_value());
  check_golden(*tokenizer, "tokenizer-gpt2.json");
}

TEST(Tokenizer, GivesBackAMillionByteStrings) {
  RandomText random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const std::string text = i % 4 == 0 ? random.bytes(16) : random.characters(8);
    ASSERT_EQ(demo().decode(demo().encode(text, i % 2 == 0)), text) << to_hex(as_bytes_of(text));
  }
}

TEST(Tokenizer, GivesBackEveryPairOfBytes) {
  for (int pair = 0; pair < 65536; ++pair) {
    const std::string text = {static_cast<char>(pair >> 8), static_cast<char>(pair)};
    ASSERT_EQ(demo().decode(demo().encode(text)), text) << pair;
  }
}

// Merges by the definition: the pair of lowest rank, leftmost first, until there is none.
Ids encode_slowly(const Tokenizer& tokenizer, const std::map<std::string, int32_t>& ids,
                  const std::map<std::pair<std::string, std::string>, int>& ranks,
                  std::string_view text) {
  Ids out;
  while (!text.empty()) {
    const size_t length = first_piece(text);
    std::vector<std::string> parts;
    for (const char c : text.substr(0, length)) parts.emplace_back(1, c);
    text.remove_prefix(length);
    while (true) {
      int best = std::numeric_limits<int>::max();
      size_t where = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto rank = ranks.find({parts[i], parts[i + 1]});
        if (rank == ranks.end() || rank->second >= best) continue;
        best = rank->second;
        where = i;
      }
      if (best == std::numeric_limits<int>::max()) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
    }
    for (const std::string& part : parts) out.push_back(ids.at(part));
  }
  EXPECT_EQ(tokenizer.decode(out).size() > 0, !out.empty());
  return out;
}

TEST(Tokenizer, MergesAsTheDefinitionSays) {
  RandomText random(2);
  for (int round = 0; round < 200; ++round) {
    // Merges in any order: such that later ones make what earlier ones need, as no trained file has
    // them.
    std::vector<std::string> known = {"a", "b", "c"};
    Pairs pairs;
    for (int i = 0; i < 12; ++i) {
      pairs.emplace_back(known[random.below(known.size())], known[random.below(known.size())]);
      known.push_back(pairs.back().first + pairs.back().second);
      if (known.back().size() > 12) known.pop_back(), pairs.pop_back();
    }
    for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[random.below(i)]);
    const Small small(pairs);
    const Tokenizer tokenizer = small.build();
    for (int i = 0; i < 50; ++i) {
      std::string text;
      for (size_t n = random.below(40); n > 0; --n) text += "abc"[random.below(3)];
      ASSERT_EQ(tokenizer.encode(text), encode_slowly(tokenizer, small.ids, small.ranks, text))
          << small.merges << text;
    }
  }
}

TEST(Tokenizer, TakesTimeInProportionToTheText) {
  for (const char* c :
       {"a", "1", "!", " ", "\n", "'", "é", "中", "\xFF", "\xE4", "<", "<|endoftext"}) {
    std::string text;
    while (text.size() < 1 << 20) text += c;
    Ids ids;
    ids = demo().encode(text);  // 0.2 s; the square of the length would take hours
    EXPECT_EQ(demo().decode(ids), text);
  }
}

TEST(Tokenizer, TakesEndOfTextAsSpecialOrPlain) {
  const int32_t end = *demo().end_of_text();
  EXPECT_EQ(demo().encode("<|endoftext|>"), Ids{end});
  EXPECT_EQ(demo().encode("<|endoftext|><|endoftext|>"), (Ids{end, end}));
  for (const int32_t id : demo().encode("a<|endoftext|>b", false)) EXPECT_NE(id, end);
  for (const int32_t id : demo().encode("<|endoftext|")) EXPECT_NE(id, end);
  // The text before it is tokenized alone: its last spaces belong together.
  Ids apart = demo().encode("x  ");
  apart.push_back(end);
  EXPECT_EQ(demo().encode("x  <|endoftext|>"), apart);
  EXPECT_EQ(demo().decode(apart), "x  <|endoftext|>");
  EXPECT_EQ(demo().encode(""), Ids{});
}

TEST(Tokenizer, RefusesIdsOutOfRange) {
  for (const int32_t id : {-1, std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(message_of([&] { demo().token_bytes(id); }),
              cat("[tokenizer] token id: expected 0 and above, got ", id));
    EXPECT_NE(message_of([&] { demo().decode(Ids{0, id}); }), "no error");
  }
}

}  // namespace
}  // namespace split
