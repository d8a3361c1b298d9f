// text/: tokenizer, pre-tokenizer, UTF-8.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text_testing.h"

#ifdef SPLIT_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace split {
namespace {

using Json = nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;
namespace fs = std::filesystem;

const fs::path kSource = SPLIT_SOURCE_DIR;

std::string slurp(const fs::path& path) { return read_file(path, 64 << 20); }

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::from_vocab_merges(
      slurp(kSource / "weights/demo/vocab.json"), slurp(kSource / "weights/demo/merges.txt"));
  return tokenizer;
}

// ---------------------------------------------------------------- tokenizer

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

// A vocabulary of 256 bytes, the given merges' results and <|endoftext|>.
struct Small {
  Json vocab = Json::object();
  std::string merges = "#version: 0.2\n";
  std::map<std::string, int32_t> ids;  // by bytes
  std::map<std::pair<std::string, std::string>, int> ranks;

  // Letters and digits only in `pairs`, where a byte is its own character.
  explicit Small(const Pairs& pairs = {}) {
    for (int id = 0; id < 256; ++id) {
      const std::string key(demo().token_bytes(id));
      vocab[key_of(static_cast<unsigned char>(key[0]))] = id;
      ids[key] = id;
    }
    for (const auto& [left, right] : pairs) {
      if (!ranks.emplace(std::pair(left, right), static_cast<int>(ranks.size())).second) continue;
      if (ids.emplace(left + right, static_cast<int32_t>(ids.size())).second) {
        vocab[left + right] = ids[left + right];
      }
      merges += left + " " + right + "\n";
    }
    vocab["<|endoftext|>"] = vocab.size();
  }
  // GPT-2's bytes_to_unicode().
  static std::string key_of(int byte) {
    int code = byte, next = 256;
    for (int b = 0; b <= byte; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      code = itself ? b : next++;
    }
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  }
  Tokenizer build() const { return Tokenizer::from_vocab_merges(vocab.dump(), merges); }
};

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
  // What stands before it is a text of its own: its last spaces belong together.
  Ids apart = demo().encode("x  ");
  apart.push_back(end);
  EXPECT_EQ(demo().encode("x  <|endoftext|>"), apart);
  EXPECT_EQ(demo().decode(apart), "x  <|endoftext|>");
  EXPECT_EQ(demo().encode(""), Ids{});
}

TEST(Tokenizer, RefusesIdsOutOfRange) {
  for (const int32_t id :
       {-1, 8192, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    EXPECT_EQ(message_of([&] { demo().token_bytes(id); }),
              cat("[tokenizer] token id: expected 0 to 8191, got ", id));
    EXPECT_NE(message_of([&] { demo().decode(Ids{0, id}); }), "no error");
  }
}

std::string vocab_error(const std::string& vocab, const std::string& merges = "") {
  return message_of([&] { Tokenizer::from_vocab_merges(vocab, merges); });
}
std::string merges_error(const std::string& merges) {
  return vocab_error(Small(Pairs{{"a", "b"}}).vocab.dump(), merges);
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

TEST(TokenizerFiles, RefusesBadVocabularies) {
  const std::string prefix = "[tokenizer] vocab.json: ", bad = "[tokenizer] vocab.json ";
  const auto with = [](const char* key, const Json& value) {
    Json vocab = Small().vocab;
    vocab[key] = value;
    return vocab_error(vocab.dump());
  };
  EXPECT_EQ(vocab_error(""), bad + "is not valid JSON at byte 1");
  EXPECT_EQ(vocab_error("{\"a\":0"), bad + "is not valid JSON at byte 7");
  EXPECT_EQ(vocab_error("{\"a\":1e999}"), bad + "is not valid JSON at byte 10");
  EXPECT_EQ(vocab_error("{\"\xFF\":0}"), bad + "is not valid JSON at byte 3");
  EXPECT_EQ(vocab_error(std::string("{\"a\0\":0}", 8)), bad + "is not valid JSON at byte 4");
  EXPECT_EQ(vocab_error("[1]"), prefix + "expected an object, got [1]");
  EXPECT_EQ(vocab_error("{}"), prefix + "no tokens");
  EXPECT_EQ(vocab_error("{\"a\":0,\"a\":0}"), bad + "has the key 'a' twice");
  EXPECT_EQ(vocab_error("{\"a\":0,\"b\":0}"), prefix + "two tokens have the id 0");
  EXPECT_EQ(vocab_error("{\"a\":0,\"b\":2}"),
            prefix + "token ids: expected 0 to 1 without holes, got 2");
  EXPECT_EQ(with("zz", 1.0), prefix + "expected a token id, got 1.0");
  EXPECT_EQ(with("zz", -1), prefix + "expected a token id, got -1");
  EXPECT_EQ(with("zz", "1"), prefix + "expected a token id, got \"1\"");
  EXPECT_EQ(with("zz", nullptr), prefix + "expected a token id, got null");
  EXPECT_EQ(with("zz", ~0ull),
            prefix + "token ids: expected 0 to 257 without holes, got 18446744073709551615");
  EXPECT_EQ(with("zz", 4294967296),
            prefix + "token ids: expected 0 to 257 without holes, got 4294967296");
  EXPECT_EQ(with("", 257), prefix + "token 257 is empty");
  EXPECT_EQ(with("a b", 257),
            prefix + "token 257: U+20 is not one of the 256 characters that stand for bytes");
  EXPECT_EQ(with("中", 257),
            prefix + "token 257: U+4E2D is not one of the 256 characters that stand for bytes");
  EXPECT_EQ(with(std::string(1025, 'a').c_str(), 257),
            prefix + "token 257: expected at most 1024 bytes, got 1025");
  EXPECT_EQ(vocab_error("{\"a\":0}"),
            "[tokenizer] vocabulary: expected a token for each byte, got none for byte 0");
  EXPECT_EQ(vocab_error(std::string((16 << 20) + 1, ' ')),
            prefix + "expected at most 16777216 bytes, got 16777217");
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

TEST(TokenizerFiles, RefusesBadMerges) {
  const std::string prefix = "[tokenizer] merges.txt: ";
  EXPECT_EQ(merges_error("a b"), "no error");
  for (const char* bad : {"ab", "a b c", " ab", "ab ", "a  b", " ", "\na b", "a\tb"}) {
    EXPECT_EQ(merges_error(bad), prefix + "merge 1: expected two parts with one space between them")
        << bad;
  }
  EXPECT_EQ(merges_error("a b\nxy b\n"),
            prefix + "merge 2: its left part is not in the vocabulary");
  EXPECT_EQ(merges_error("a b\na xy\n"),
            prefix + "merge 2: its right part is not in the vocabulary");
  EXPECT_EQ(merges_error("a b\nb a\n"), prefix + "merge 2: its result is not in the vocabulary");
  EXPECT_EQ(merges_error("a b\na b\n"), "[tokenizer] merges: merge 2 repeats merge 1");
  EXPECT_EQ(merges_error("a \xFF\n"), prefix + "merge 1: its right part is not in the vocabulary");
  EXPECT_EQ(merges_error(std::string((16 << 20) + 1, 'a')),
            prefix + "expected at most 16777216 bytes, got 16777217");
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
  file["model"]["merges"] =
      Json::array({Json::array({"a", "b"})});  // as tokenizers 0.20 and later write them
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
  EXPECT_EQ(error("/model", nullptr), "model: expected BPE with a vocab and merges, got null");
  EXPECT_EQ(error("/model", 3), "model: expected an object, got 3");
  EXPECT_EQ(error("/model/type", "WordPiece"),
            "model: expected BPE with a vocab and merges, got \"WordPiece\"");
  EXPECT_EQ(error("/model/vocab", Json::array()),
            "model: expected BPE with a vocab and merges, got \"BPE\"");
  EXPECT_EQ(error("/model/merges", 3), "model: expected BPE with a vocab and merges, got \"BPE\"");
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
  EXPECT_EQ(error("/model/ignore_merges", true), "model.ignore_merges is not supported: true");
  EXPECT_EQ(error("/model/byte_fallback", true), "model.byte_fallback is not supported: true");
  EXPECT_EQ(error("/normalizer", {{"type", "NFC"}}),
            "normalizer is not supported: {\"type\":\"NFC\"}");
  EXPECT_EQ(error("/pre_tokenizer", nullptr), "pre_tokenizer: expected ByteLevel, got null");
  EXPECT_EQ(error("/pre_tokenizer", 3), "pre_tokenizer: expected an object, got 3");
  EXPECT_EQ(error("/pre_tokenizer/add_prefix_space", true),
            "pre_tokenizer.add_prefix_space is not supported: true");
  EXPECT_EQ(error("/pre_tokenizer/use_regex", false),
            "pre_tokenizer.use_regex is not supported: false");
  EXPECT_EQ(error("/post_processor/type", "TemplateProcessing"),
            "post_processor.type is not supported: \"TemplateProcessing\"");
  EXPECT_EQ(error("/decoder/type", "WordPiece"), "decoder.type is not supported: \"WordPiece\"");
  EXPECT_EQ(error("/added_tokens", 3), "added_tokens: expected a list of at most 256, got 3");
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
  EXPECT_EQ(error("/added_tokens/1", {{"content", "x"}, {"id", vocab["x"]}, {"lstrip", true}}),
            "added_tokens: lstrip is not supported: true");
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

// ---------------------------------------------------------------- pre-tokenizer

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t length = first_piece(text);
    pieces.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

TEST(Pretokenizer, CutsByHand) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("Hello  world's 42 tests!\n\n x"),
            (Pieces{"Hello", " ", " world", "'s", " 42", " tests", "!", "\n\n", " x"}));
  EXPECT_EQ(pieces_of("a \n"), (Pieces{"a", " \n"}));
  EXPECT_EQ(pieces_of("\tx"), (Pieces{"\t", "x"}));
  EXPECT_EQ(pieces_of("'LL 'll ''s '"), (Pieces{"'", "LL", " '", "ll", " ''", "s", " '"}));
  EXPECT_EQ(pieces_of("x\xFF\xE4\xB8 \xFF"), (Pieces{"x", "\xFF\xE4\xB8", " \xFF"}));
}

#ifdef SPLIT_HAVE_PCRE2
// A compiled pattern over UTF-8 with Unicode properties (PCRE2 10.42 has Unicode 14, as our
// tables).
class Pattern {
 public:
  explicit Pattern(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    CHECK(code_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pattern() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  // pcre2_match()'s answer at `from`; end() is then where the match ends.
  int match(std::string_view text, size_t from) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match_, nullptr);
  }
  size_t end() const { return pcre2_get_ovector_pointer(match_)[1]; }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// PCRE2's \s also has U+180E, which lost the property White_Space in Unicode 6.3.
TEST(Pretokenizer, CutsAsPcre2) {
  Pattern pattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  RandomText random(4);
  for (int i = 0; i < 100'000; ++i) {
    const std::string text = random.characters(24);
    std::vector<std::string> expected;
    for (size_t at = 0; at < text.size(); at = pattern.end()) {
      ASSERT_GT(pattern.match(text, at), 0);
      expected.push_back(text.substr(at, pattern.end() - at));
    }
    ASSERT_EQ(pieces_of(text), expected) << to_hex(as_bytes_of(text));
  }
}

TEST(Pretokenizer, ClassifiesEveryCodePointAsPcre2) {
  Pattern pattern(R"((\p{L})|(\p{N})|(\s))");
  for (char32_t code = 0; code < 0x110000; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || code == 0x180E) continue;
    std::string text;
    if (code < 0x80) text = {static_cast<char>(code)};
    if (code >= 0x80 && code < 0x800) text = {static_cast<char>(0xC0 | code >> 6)};
    if (code >= 0x800 && code < 0x10000) text = {static_cast<char>(0xE0 | code >> 12)};
    if (code >= 0x10000) text = {static_cast<char>(0xF0 | code >> 18)};
    for (int shift = code < 0x80 ? 0 : code < 0x800 ? 6 : code < 0x10000 ? 12 : 18; shift > 0;) {
      shift -= 6;
      text += static_cast<char>(0x80 | (code >> shift & 0x3F));
    }
    const int group = std::max(1, pattern.match(text, 0)) - 1;  // 0: none matched
    ASSERT_EQ(static_cast<int>(char_class(code)), group) << std::hex << static_cast<uint32_t>(code);
    const Utf8Char c = utf8_first(text);
    ASSERT_EQ(c.status, Utf8Status::kValid);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
  }
  EXPECT_EQ(char_class(0x180E), CharClass::kOther);
}
#endif

// ---------------------------------------------------------------- UTF-8

TEST(Utf8, ReplacesWhatIsNotUtf8) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(to_valid_utf8("aé中😀\0"), "aé中😀\0");
  EXPECT_EQ(to_valid_utf8("\xFFx\x80"), r + "x" + r);
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(to_valid_utf8("\xE0\x80\xAF"), r + r + r);          // overlong
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xE4\xB8"), r);                      // cut off
  EXPECT_EQ(to_valid_utf8("\xE4\xB8x"), r + "x");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(to_valid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                          "b\x80"
                          "c\x80\xBF"
                          "d"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
}

TEST(Utf8, StreamHoldsBackIncompleteCharactersOnly) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE4"), "a");
  EXPECT_EQ(stream.push("\xB8"), "");
  EXPECT_EQ(stream.push("\xAD\xF0\x9F\x98"), "中");
  EXPECT_EQ(stream.push("\x80\xC3"), "😀");
  EXPECT_EQ(stream.push("x"), "\xC3x");
  EXPECT_EQ(stream.push("\xFF"), "\xFF");
  EXPECT_EQ(stream.push("\x80\x80\x80\x80"), "\x80\x80\x80\x80");
  EXPECT_EQ(stream.push("\xE0\x80"), "\xE0\x80");  // can no longer become a character
  EXPECT_EQ(stream.push("\xED\xA0"), "\xED\xA0");
  EXPECT_EQ(stream.push("\xF4\x8F\xBF"), "");
  EXPECT_EQ(stream.flush(), "\xF4\x8F\xBF");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8, StreamNeverSplitsACharacterAndLosesNothing) {
  RandomText random(5);
  for (int i = 0; i < 20'000; ++i) {
    const bool valid = i % 2 == 0;
    const std::string text = valid ? random.characters(20) : random.bytes(20);
    Utf8Stream stream;
    std::string whole;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random.below(4);
      const std::string out = stream.push(std::string_view(text).substr(at, n));
      at += n;
      if (valid) {
        ASSERT_EQ(to_valid_utf8(out), out);
      }
      whole += out;
      ASSERT_GE(whole.size() + 3, std::min(at, text.size()));
    }
    if (valid) {
      ASSERT_EQ(whole, text);
    }
    ASSERT_EQ(whole + stream.flush(), text);
  }
}

TEST(Utf8, StreamsEveryTokenOfTheVocabulary) {
  Utf8Stream stream;
  std::string out, all;
  for (int32_t id = 0; id < demo().size(); ++id) {
    const std::string_view bytes = demo().token_bytes(id);
    ASSERT_FALSE(bytes.empty());
    all += bytes;
    out += stream.push(bytes);
    ASSERT_NO_THROW((void)Json(to_valid_utf8(bytes)).dump());
  }
  EXPECT_EQ(out + stream.flush(), all);
}

}  // namespace
}  // namespace split
