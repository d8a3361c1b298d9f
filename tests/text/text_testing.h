// Helpers that the tests of text/ share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace split {

using Ids = std::vector<int32_t>;

// The message of the Error(kind) that `call` throws.
template <typename Call>
std::string message_of(Call&& call, ErrorKind kind = ErrorKind::kInput) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

// Strings of characters of every class, and of what the pre-tokenizer's pattern names.
class RandomText {
 public:
  explicit RandomText(unsigned seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }  // not quite even, the same everywhere

  std::string characters(size_t most) {
    static const char* const pool[] = {
        "a",      "b",      "Z",      "é",      "ß",      "Ω",          "я",    "中",
        "あ",     "𝔸",      "ª",      "ʰ",      "अ",      "ा",          "́",     "1",
        "9",      "²",      "½",      "Ⅷ",      "٣",      "𝟘",          "㉈",   "!",
        ".",      "-",      "_",      "'",      "'",      "\"",         "—",    "€",
        "😀",      "\x01",   "\u200B", "\uFEFF", "\uFFFD", "\U0010FFFF", " ",    " ",
        " ",      "\t",     "\n",     "\r",     "\v",     "\f",         "\x1C", "\u0085",
        "\u00A0", "\u1680", "\u2003", "\u2028", "\u202F", "\u3000",     "'s",   "'t",
        "'re",    "'ve",    "'m",     "'ll",    "'d",     "'S",         "s",    "t",
        "re",     "ve",     "m",      "ll",     "d",      "'l",         "'r",   "the",
        " a"};
    std::string text;
    for (size_t n = below(most + 1); n > 0; --n) text += pool[below(std::size(pool))];
    return text;
  }
  std::string bytes(size_t most) {
    std::string text;
    for (size_t n = below(most + 1); n > 0; --n) text += static_cast<char>(below(256));
    return text;
  }

 private:
  std::mt19937_64 random_;
};

using Json = nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;
namespace fs = std::filesystem;

inline const fs::path kSource = SPLIT_SOURCE_DIR;

inline std::string slurp(const fs::path& path) { return read_file(path, 64 << 20); }

inline const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::from_vocab_merges(
      slurp(kSource / "weights/demo/vocab.json"), slurp(kSource / "weights/demo/merges.txt"));
  return tokenizer;
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

}  // namespace split
