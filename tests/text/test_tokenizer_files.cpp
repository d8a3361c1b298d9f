// text/tokenizer's files: what they may hold, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/attack_files.h"
#include "text_testing.h"

namespace split {
namespace {

std::string vocab_error(const std::string& vocab, const std::string& merges = "") {
  return message_of([&] { Tokenizer::from_vocab_merges(vocab, merges); });
}
TEST(TokenizerFiles, AcceptsWhatMergesFilesHave) {
  const Small small(Pairs{{"a", "b"}});
  for (const char* merges : {"a b", "a b\n", "#version: 0.2\na b\n", "#version: 0.2\r\na b\r\n"}) {
    EXPECT_EQ(Tokenizer::from_vocab_merges(small.vocab.dump(), merges).encode("ab"), Ids{256});
  }
  for (const char* none : {"", "#version: 0.2", "#version: 0.2\n"}) {
    EXPECT_EQ(Tokenizer::from_vocab_merges(small.vocab.dump(), none).encode("ab").size(), 2u);
  }
}

// Behind "[tokenizer] ".
constexpr test::Attack kVocabAttacks[] = {
    {"empty", "vocab.json is not valid JSON at byte 1"},
    {"json_cut", "vocab.json is not valid JSON at byte 2112"},
    {"json_trailing", "vocab.json is not valid JSON at byte 2113"},
    {"json_not_utf8", "vocab.json is not valid JSON at byte 2105"},
    {"json_nul_in_key", "vocab.json is not valid JSON at byte 2106"},
    {"json_number_overflow", "vocab.json is not valid JSON at byte 2113"},
    {"json_deep", "vocab.json nests deeper than 32 objects and arrays"},
    {"not_object", "vocab.json: expected an object, got [1]"},
    {"no_tokens", "vocab.json: no tokens"},
    {"key_twice", "vocab.json has the key 'ab' twice"},
    {"id_twice", "vocab.json: two tokens have the id 256"},
    {"id_hole", "vocab.json: token ids: expected 0 to 257 without holes, got 300"},
    {"id_negative", "vocab.json: expected a token id, got -1"},
    {"id_fraction", "vocab.json: expected a token id, got 257.0"},
    {"id_text", "vocab.json: expected a token id, got \"257\""},
    {"id_null", "vocab.json: expected a token id, got null"},
    {"id_over_32_bits", "vocab.json: token ids: expected 0 to 257 without holes, got 4294967296"},
    {"id_max", "vocab.json: token ids: expected 0 to 257 without holes, got 18446744073709551615"},
    {"token_empty", "vocab.json: token 257 is empty"},
    {"token_with_space",
     "vocab.json: token 257: U+20 is not one of the 256 characters that stand for bytes"},
    {"token_no_byte_character",
     "vocab.json: token 257: U+4E2D is not one of the 256 characters that stand for bytes"},
    {"token_too_long", "vocab.json: token 257: expected at most 1024 bytes, got 1025"},
    {"byte_missing", "vocabulary: expected a token for each byte, got none for byte 255"},
};

TEST(TokenizerFiles, RefusesBadVocabularies) {
  test::expect_refused(".vocab", kVocabAttacks, "[tokenizer] ", [](const std::string& vocab) {
    const std::string error = vocab_error(vocab);
    return error == "no error" ? "" : error;
  });
  EXPECT_EQ(vocab_error(std::string((16 << 20) + 1, ' ')),
            "[tokenizer] vocab.json: expected at most 16777216 bytes, got 16777217");
}

TEST(TokenizerFiles, RefusesDeepAndHugeJsonQuickly) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(vocab_error(nested(32)).find("[tokenizer] vocab.json: expected an object, got [[["),
            0u);
  EXPECT_EQ(vocab_error(nested(33)),
            "[tokenizer] vocab.json nests deeper than 32 objects and arrays");
  EXPECT_EQ(vocab_error(std::string(10'000'000, '[')),
            "[tokenizer] vocab.json nests deeper than 32 objects and arrays");
  std::string many = "[{}";
  while (many.size() < 15'000'000) many += ",{}";
  // In time with its length: one that takes the square of it does not end within the test's limit.
  EXPECT_NE(vocab_error(many + "]"), "no error");
  EXPECT_NE(vocab_error(many.substr(0, 6'000'000) + ",0]"), "no error");
}

// Behind "[tokenizer] merges".
constexpr test::Attack kMergesAttacks[] = {
    {"one_part", ".txt: merge 1: expected two parts with one space between them"},
    {"three_parts", ".txt: merge 1: expected two parts with one space between them"},
    {"leading_space", ".txt: merge 1: expected two parts with one space between them"},
    {"trailing_space", ".txt: merge 1: expected two parts with one space between them"},
    {"two_spaces", ".txt: merge 1: expected two parts with one space between them"},
    {"tab", ".txt: merge 1: expected two parts with one space between them"},
    {"empty_line", ".txt: merge 1: expected two parts with one space between them"},
    {"left_unknown", ".txt: merge 2: its left part is not in the vocabulary"},
    {"right_unknown", ".txt: merge 2: its right part is not in the vocabulary"},
    {"result_unknown", ".txt: merge 2: its result is not in the vocabulary"},
    {"merge_twice", ": merge 2 repeats merge 1"},
    {"not_utf8", ".txt: merge 1: its right part is not in the vocabulary"},
    {"nul", ".txt: merge 1: its right part is not in the vocabulary"},
};

TEST(TokenizerFiles, RefusesBadMerges) {
  const std::string vocab = slurp(test::attack_file("good.vocab"));
  test::expect_refused(".merges", kMergesAttacks, "[tokenizer] merges",
                       [&](const std::string& merges) {
                         const std::string error = vocab_error(vocab, merges);
                         return error == "no error" ? "" : error;
                       });
  EXPECT_EQ(vocab_error(vocab, std::string((16 << 20) + 1, 'a')),
            "[tokenizer] merges.txt: expected at most 16777216 bytes, got 16777217");
}

Json small_tokenizer_json() {
  const Small small(Pairs{{"a", "b"}});
  return {{"added_tokens", {{{"id", 257}, {"content", "<|endoftext|>"}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", {{"type", "ByteLevel"}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", small.vocab}, {"merges", {"a b"}}}}};
}

TEST(TokenizerFiles, ReadsTokenizerJson) {
  Json file = small_tokenizer_json();
  EXPECT_EQ(Tokenizer::from_tokenizer_json(file.dump()).encode("ab<|endoftext|>"), (Ids{256, 257}));
  // Merges as tokenizers 0.20 and later write them.
  file["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  EXPECT_EQ(Tokenizer::from_tokenizer_json(file.dump()).encode("ab"), Ids{256});
  file["model"].erase("type");
  file.erase("added_tokens");
  EXPECT_EQ(Tokenizer::from_tokenizer_json(file.dump()).encode("ab<|endoftext|>"), (Ids{256, 257}));
  // Tokens that a fine-tuning added after the vocabulary; the longest wins where several start.
  file["added_tokens"] = {{{"id", 258}, {"content", "[PAD]"}},
                          {{"id", 259}, {"content", "[PAD] 中"}}};
  const auto tokenizer = Tokenizer::from_tokenizer_json(file.dump());
  EXPECT_EQ(tokenizer.size(), 260);
  EXPECT_EQ(tokenizer.encode("ab[PAD][PAD] 中<|endoftext|>"), (Ids{256, 258, 259, 257}));
  EXPECT_EQ(tokenizer.decode(Ids{256, 258, 259}), "ab[PAD][PAD] 中");
}

TEST(TokenizerFiles, RefusesTokenizerJsonByName) {
  const auto error = [](const char* pointer, const Json& value) {
    Json file = small_tokenizer_json();
    file[Json::json_pointer(pointer)] = value;
    const std::string prefix = "[tokenizer] tokenizer.json: ";
    const std::string message = message_of([&] { Tokenizer::from_tokenizer_json(file.dump()); });
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  };
  const Json vocab = Small().vocab;
  EXPECT_EQ(error("/version", "1.0"), "no error");
  EXPECT_EQ(error("", 3), "expected an object, got 3");
  EXPECT_EQ(error("/model", nullptr), "model: expected BPE, WordPiece or Unigram, got null");
  EXPECT_EQ(error("/model", 3), "model: expected an object, got 3");
  EXPECT_EQ(error("/model/type", "Words"),
            "model: expected BPE, WordPiece or Unigram, got \"Words\"");
  EXPECT_EQ(error("/model/type", "WordPiece"), "normalizer is not supported: null");
  EXPECT_EQ(error("/model/vocab", Json::array()),
            "model: expected a vocab and merges, got \"BPE\"");
  EXPECT_EQ(error("/model/merges", 3), "model: expected a vocab and merges, got \"BPE\"");
  EXPECT_EQ(error("/model/merges", {3}), "merge 1: expected two strings, got 3");
  EXPECT_EQ(error("/model/merges", {"a b", {"a"}}), "merge 2: expected two strings, got [\"a\"]");
  EXPECT_EQ(error("/model/merges", {"ab"}),
            "merge 1: expected two parts with one space between them");
  EXPECT_EQ(error("/model/merges", Json::array({Json::array({"a", "xy"})}))
                .find("merge 1: its right part"),
            0u);
  EXPECT_EQ(error("/model/vocab/zz", 999), "token ids: expected 0 to 258 without holes, got 999");
  EXPECT_EQ(error("/model/dropout", 0.1), "model.dropout is not supported: 0.1");
  EXPECT_EQ(error("/model/dropout", 0.0), "no error");
  EXPECT_EQ(error("/model/continuing_subword_prefix", "##"),
            "model.continuing_subword_prefix is not supported: \"##\"");
  EXPECT_EQ(error("/model/byte_fallback", true),
            "pre_tokenizer is not supported: {\"add_prefix_space\":false,\"type\":\"ByteLevel\"}");
  EXPECT_EQ(error("/normalizer", {{"type", "NFKC"}}),
            "normalizer is not supported: {\"type\":\"NFKC\"}");
  EXPECT_EQ(error("/pre_tokenizer", nullptr), "pre_tokenizer: expected ByteLevel, got null");
  EXPECT_EQ(error("/pre_tokenizer", 3), "pre_tokenizer: expected an object, got 3");
  EXPECT_EQ(error("/pre_tokenizer/add_prefix_space", true),
            "pre_tokenizer.add_prefix_space is not supported: true");
  EXPECT_EQ(error("/pre_tokenizer/use_regex", false),
            "pre_tokenizer.use_regex is not supported: false");
  EXPECT_EQ(error("/post_processor/type", "TemplateProcessing"),
            "post_processor.single is not supported: null");
  EXPECT_EQ(error("/post_processor/type", "Other"),
            "post_processor.type is not supported: \"Other\"");
  EXPECT_EQ(error("/decoder/type", "WordPiece"), "decoder.type is not supported: \"WordPiece\"");
  EXPECT_EQ(error("/added_tokens", 3), "added_tokens: expected a list of at most 16384, got 3");
  EXPECT_EQ(error("/added_tokens/0", 3),
            "added_tokens: expected objects with id and content, got 3");
  EXPECT_EQ(error("/added_tokens/0/id", -1).find("added_tokens: expected objects with id"), 0u);
  EXPECT_EQ(error("/added_tokens/0/id", 3),
            "added_tokens: \"<|endoftext|>\": the id 3 is not its own");
  EXPECT_EQ(error("/added_tokens/0/content", ""),
            "added_tokens: expected 1 to 1024 bytes of content, got 0");
  EXPECT_EQ(error("/added_tokens/0/content", "x"),
            "added_tokens: \"x\": the id 257 is not its own");
  // In the vocabulary this character is the byte E9.
  const Json latin = {{"content", "é"}, {"id", vocab["é"]}};
  EXPECT_EQ(error("/added_tokens/1", latin).find("added_tokens: \"\\u00e9\": the id "), 0u);
  EXPECT_EQ(error("/added_tokens/1", {{"content", "x"}, {"id", vocab["x"]}}), "no error");
  EXPECT_EQ(error("/added_tokens/1", {{"content", "x"}, {"id", vocab["x"]}, {"single_word", true}}),
            "added_tokens: single_word is not supported: true");
  EXPECT_EQ(
      error("/pre_tokenizer", {{"type", "Sequence"},
                               {"pretokenizers",
                                {{{"type", "Split"}, {"pattern", {{"Regex", "\\d+"}}}},
                                 {{"type", "ByteLevel"}, {"use_regex", false}}}}}),
      "pre_tokenizer: the pattern \"\\\\d+\" is not known: expected that of GPT-2, Llama 3, Qwen2 "
      "or Qwen3.5");
  EXPECT_EQ(error("/added_tokens/1", {{"content", "<|endoftext|>"}, {"id", 257}}),
            "added_tokens: \"<|endoftext|>\" is there twice");
}

struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "split-text-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

TEST(TokenizerFiles, LoadsWhatADirectoryHas) {
  const TemporaryFolder folder;
  EXPECT_FALSE(load_tokenizer(folder.path).has_value());
  EXPECT_FALSE(load_tokenizer(folder.path / "none").has_value());
  const auto copy = [&](const char* name) {
    fs::copy_file(kSource / "weights/demo" / name, folder.path / name);
  };
  copy("vocab.json");
  EXPECT_EQ(message_of([&] { load_tokenizer(folder.path); }, ErrorKind::kNotFound),
            cat("[tokenizer] ", folder.path.string(), ": vocab.json without merges.txt"));
  copy("tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder.path)->size(), 8192);
  fs::remove(folder.path / "tokenizer.json");
  copy("merges.txt");
  EXPECT_EQ(load_tokenizer(folder.path)->size(), 8192);
  fs::remove(folder.path / "merges.txt");
  fs::create_directory(folder.path / "merges.txt");
  EXPECT_NE(message_of([&] { load_tokenizer(folder.path); }, ErrorKind::kIo), "no error");
}

// Damage at random places is an error or a tokenizer that still gives back what it takes; never a
// crash.
TEST(TokenizerFiles, SurvivesRandomDamage) {
  RandomText random(3);
  const Small small(Pairs{{"a", "b"}, {"ab", "c"}, {"b", "c"}});
  const std::string whole = small_tokenizer_json().dump();
  int refused = 0, taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const bool json = i % 2 == 0;
    std::string vocab = json ? whole : small.vocab.dump(), merges = small.merges;
    for (size_t n = 1 + random.below(3); n > 0; --n) {
      std::string& file = !json && random.below(2) == 0 ? merges : vocab;
      file[random.below(file.size())] = random.below(2) == 0
                                            ? static_cast<char>(random.below(256))
                                            : "0123456789{}[]\",:- \n"[random.below(20)];
    }
    try {
      const Tokenizer tokenizer = json ? Tokenizer::from_tokenizer_json(vocab)
                                       : Tokenizer::from_vocab_merges(vocab, merges);
      const std::string text = random.characters(20) + "abcabc<|endoftext|>";
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kInput);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 50);
}

}  // namespace
}  // namespace split
