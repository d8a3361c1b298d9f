// text/unigram: grapheme clusters against PCRE2, charsmaps and vocabularies that come from
// anywhere. What Unigram gives for whole texts is among the goldens of test_tokenizers.cpp.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/base64.h"
#include "text/unigram/charsmap.h"
#include "text/unigram/graphemes.h"
#include "text/utf8.h"
#include "text_testing.h"

#ifdef SPLIT_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace split {
namespace {

const fs::path kGolden = kSource / "tests/golden/models/tokenizers/unigram-bge/tokenizer.json";

#ifdef SPLIT_HAVE_PCRE2
TEST(Graphemes, AreThoseOfPcre) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>("\\X"), 2, PCRE2_UTF | PCRE2_UCP, &error,
                             &offset, nullptr);
  ASSERT_NE(code, nullptr);
  auto* match = pcre2_match_data_create_from_pattern(code, nullptr);
  // PCRE2 10.42 joins two pictographs with a mark between them, which UAX 29 does not (GB11 wants a
  // joiner), and parts a mark from a regional indicator (GB9): each stands between letters here.
  const char* const parts[] = {"a👩\u200D❤\uFE0F\u200D👩a",
                               "a👩🏽a",
                               "a©a",
                               "\uFE0F",
                               "a",
                               "\r",
                               "\n",
                               "\t",
                               "\u00AD",
                               "\u0301",
                               "\u0323",
                               "\u200D",
                               "\u200C",
                               "a🇩🇪a",
                               "\u0600",
                               "\u0903",
                               "अ",
                               "\u093E",
                               "\u1100",
                               "\u1161",
                               "\u11A8",
                               "가",
                               "각",
                               "\u0E33",
                               "\u20DD",
                               "ｶ",
                               "\uFF9E",
                               "\u2028",
                               "\U000E0020",
                               "é",
                               "中"};
  std::mt19937 random(7);
  size_t clusters = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = 1 + random() % 8; n > 0; --n) text += parts[random() % std::size(parts)];
    for (size_t at = 0; at < text.size(); ++clusters) {
      ASSERT_GT(pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                            PCRE2_ANCHORED, match, nullptr),
                0);
      const size_t end = pcre2_get_ovector_pointer(match)[1];
      ASSERT_EQ(first_grapheme(std::string_view(text).substr(at)), end - at)
          << nlohmann::json(text) << " at byte " << at;
      at = end;
    }
  }
  EXPECT_GT(clusters, 20000u);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
}
#endif

// A trie of one block whose root's children stand at their labels, and what it leads to.
struct Trie {
  std::vector<uint32_t> units = std::vector<uint32_t>(256);
  std::string texts = std::string("X\0YZ\0", 5);

  static uint32_t unit(uint8_t label, uint32_t offset, bool leaf) {
    return label | uint32_t{leaf} << 8 | offset << 10;
  }
  std::string blob() const {
    std::string out;
    const auto add = [&](uint32_t word) {
      for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(word >> shift);
    };
    add(static_cast<uint32_t>(4 * units.size()));
    for (const uint32_t each : units) add(each);
    return out + texts;
  }
  // "a" becomes the text at `value`; "ab" what stands at byte 2.
  static Trie of_a(uint32_t value) {
    Trie trie;
    trie.units['a'] = unit('a', 'a' ^ 0x80, true);
    trie.units[0x80] = value | 1u << 31;
    trie.units[0x80 ^ 'b'] = unit('b', (0x80 ^ 'b') ^ 0x90, true);
    trie.units[0x90] = 2 | 1u << 31;
    return trie;
  }
};

TEST(Charsmap, ReplacesAClusterByItsShortestPrefix) {
  const Charsmap map(Trie::of_a(0).blob());
  EXPECT_EQ(map.apply("abca"), "XbcX");
  EXPECT_EQ(map.apply("a\u0301b"), "Xb") << "the mark belongs to the cluster that is replaced";
  EXPECT_EQ(map.apply("a\u0301\u0301\u0301b"), "X\u0301\u0301\u0301b")
      << "seven bytes go by character";
  EXPECT_EQ(map.apply(std::string("a\0a", 3)), std::string("X\0X", 3));
  EXPECT_EQ(map.apply(""), "");
}

TEST(Charsmap, RefusesATrieThatLeavesItsArrayOrLoops) {
  const auto error = [](const Trie& trie) {
    return message_of([&] { Charsmap map(trie.blob()); });
  };
  Trie far = Trie::of_a(0);
  far.units['a'] = Trie::unit('a', 0x400, true);
  EXPECT_EQ(error(far), "charsmap: its trie leaves its array at unit 97");
  Trie loop = Trie::of_a(0);  // "a", then "b", then "a" again is where "a" began
  loop.units['a'] = Trie::unit('a', 'a' ^ 0x42, false);
  loop.units[0x42 ^ 'b'] = Trie::unit('b', 0x42 ^ 'b', false);
  EXPECT_EQ(error(loop), "charsmap: its trie loops at unit 97");
  EXPECT_EQ(error(Trie::of_a(9)),
            "charsmap: expected a replacement of at most 256 bytes at byte 9 of 5");
  Trie wrong = Trie::of_a(0);
  wrong.texts[0] = '\xFF';
  EXPECT_EQ(error(wrong), "charsmap: its replacements are no UTF-8");
  Trie vast = Trie::of_a(0);
  vast.texts = std::string(300, 'x');
  EXPECT_EQ(error(vast), "charsmap: expected a replacement of at most 256 bytes at byte 0 of 300");
  for (const std::string& blob :
       {std::string(), std::string("\4\0\0\0", 4), std::string("\3\0\0\0abc", 7)}) {
    EXPECT_NE(message_of([&] { Charsmap map(blob); }).find("expected a trie of whole units"),
              std::string::npos);
  }
}

// Each unit of a real one spoilt in turn: refused, or a table that answers within its bounds.
TEST(Charsmap, SurvivesDamage) {
  const auto file = nlohmann::json::parse(slurp(kGolden));
  const std::string blob =
      *from_base64(file["normalizer"]["normalizers"][0]["precompiled_charsmap"].get<std::string>());
  std::mt19937 random(11);
  RandomText texts(3);
  size_t refused = 0, taken = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = blob;
    damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    try {
      Charsmap(damaged).apply(texts.characters(60));
      ++taken;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      ++refused;
    }
  }
  EXPECT_GT(refused, 50u);
  EXPECT_GT(taken, 50u);
}

TEST(Unigram, RefusesAVocabularyByName) {
  const auto golden = nlohmann::json::parse(slurp(kGolden));
  const auto error = [&](const std::function<void(nlohmann::json&)>& spoil) {
    auto file = golden;
    spoil(file);
    return message_of([&] { Tokenizer::from_tokenizer_json(file.dump()); });
  };
  EXPECT_EQ(error([](auto& file) { file["model"]["unk_id"] = nullptr; }),
            "[tokenizer] tokenizer.json: model.unk_id: expected the id of a piece for what has "
            "none, 0 to 701, got null");
  EXPECT_EQ(error([](auto& file) { file["model"]["unk_id"] = 702; }),
            "[tokenizer] tokenizer.json: model.unk_id: expected the id of a piece for what has "
            "none, 0 to 701, got 702");
  EXPECT_EQ(error([](auto& file) { file["model"]["vocab"][9] = {"x"}; }),
            "[tokenizer] tokenizer.json: model.vocab: piece 9: expected a text and a finite score, "
            "got [\"x\"]");
  EXPECT_EQ(error([](auto& file) {
              file["model"]["vocab"][9] = {"x", nullptr};
            }),
            "[tokenizer] tokenizer.json: model.vocab: piece 9: expected a text and a finite score, "
            "got [\"x\",null]");
  EXPECT_EQ(error([](auto& file) { file["model"]["vocab"][9] = file["model"]["vocab"][8]; }),
            "[tokenizer] tokenizer.json: model.vocab: " +
                golden["model"]["vocab"][8][0].dump(-1, ' ', true) + " is there twice");
  EXPECT_EQ(error([](auto& file) { file["model"]["vocab"] = nlohmann::json::array(); }),
            "[tokenizer] tokenizer.json: model.vocab: expected a list of 1 to 1048576 pieces with "
            "scores, got []");
  EXPECT_EQ(
      error([](auto& file) {
        file["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AA*=";
      }),
      "[tokenizer] tokenizer.json: normalizer.precompiled_charsmap: expected Base64, got \"AA*=\"");
  EXPECT_EQ(error([](auto& file) {
              file["normalizer"]["normalizers"][0]["precompiled_charsmap"] = "AAAA";
            }),
            "[tokenizer] tokenizer.json: normalizer.precompiled_charsmap: expected a trie of whole "
            "units within 3 bytes, got one of 0");
  EXPECT_EQ(error([](auto& file) {
              file["normalizer"]["normalizers"][1]["content"] = "_";
            }).find("[tokenizer] tokenizer.json: normalizer is not supported: "),
            0u);
  EXPECT_EQ(error([](auto& file) {
              file["pre_tokenizer"]["type"] = "Punctuation";
            }).find("[tokenizer] tokenizer.json: pre_tokenizer is not supported: "),
            0u);
}

// What a piece has no token for becomes its bytes, where the vocabulary has all 256.
TEST(Unigram, FallsBackToBytes) {
  auto file = nlohmann::json::parse(slurp(kGolden));
  file["model"]["byte_fallback"] = true;
  file["added_tokens"] = nlohmann::json::array();
  file["post_processor"] = nullptr;
  const auto first = static_cast<int32_t>(file["model"]["vocab"].size());
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    file["model"]["vocab"].push_back({name, -20.0});
  }
  const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(file.dump());
  const Ids plain = tokenizer.encode("the "), ids = tokenizer.encode("the \U00020000\U00020001");
  ASSERT_EQ(ids.size(), plain.size() + 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(ids[plain.size() + i], first + static_cast<unsigned char>("\U00020000\U00020001"[i]));
  }
  EXPECT_EQ(tokenizer.decode(ids), "the \U00020000\U00020001");
}

// Metaspace's three schemes, whole pieces, and the spelling of before 2024.
TEST(Unigram, PutsASpaceBeforeAsItsFileSays) {
  const auto golden = nlohmann::json::parse(slurp(kGolden));
  const auto marked = [&](const nlohmann::json& metaspace) {
    auto file = golden;
    for (const auto& [key, value] : metaspace.items()) file["pre_tokenizer"][key] = value;
    if (metaspace.contains("add_prefix_space")) file["pre_tokenizer"].erase("prepend_scheme");
    file["decoder"]["prepend_scheme"] = "never";  // so that each space shows
    return Tokenizer::from_tokenizer_json(file.dump());
  };
  const std::string text = "the<s>the";
  const auto shown = [&](const nlohmann::json& metaspace) {
    const Tokenizer tokenizer = marked(metaspace);
    return tokenizer.decode(tokenizer.encode(text));
  };
  EXPECT_EQ(shown({{"prepend_scheme", "always"}}), " the<s> the");
  EXPECT_EQ(shown({{"prepend_scheme", "first"}}), " the<s>the");
  EXPECT_EQ(shown({{"prepend_scheme", "never"}}), "the<s>the");
  EXPECT_EQ(shown({{"add_prefix_space", true}}), " the<s> the");
  EXPECT_EQ(shown({{"add_prefix_space", false}}), "the<s>the");
  EXPECT_EQ(shown({{"prepend_scheme", "always"}, {"split", false}}), " the<s> the");
}

}  // namespace
}  // namespace split
