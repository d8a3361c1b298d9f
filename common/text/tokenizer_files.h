// Parts that the readers of a tokenizer's files share: bounds, vocabularies and merges. The files
// are untrusted: every field is checked, and messages repeat no content of a file but JSON values,
// escaped and cut short. A part of tokenizer.cpp; others include text/tokenizer.h.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace split {

struct Tokenizer::Files {
  // Bytes. Llama 3's tokenizer.json has 9 MB, Gemma 3's 33.
  static constexpr size_t kMaxFile = 16 << 20, kMaxTokenizerJson = 64 << 20;
  static constexpr size_t kMaxTokens = 1 << 20;  // Gemma 3 has 262144, and 514906 merges
  static constexpr size_t kMaxToken = 1024;      // bytes; the longest of 50257 has 128
  static constexpr size_t kMaxAdded = 1 << 14;   // Gemma 3 has 6415
  static constexpr int kMaxDepth = 32;

  template <typename... Args>
  [[noreturn]] static void fail(const Args&... what) {
    throw Error(ErrorKind::kInput, cat("[tokenizer] ", what...));
  }
  static std::string quoted(const Json& value);
  static Json parse(std::string_view text, const char* file, size_t most = kMaxFile);

  // A vocabulary by its keys, each of which the merges look up some times.
  using Index = std::unordered_map<std::string_view, const Json*>;
  static Index index_of(const Json& vocab);

  // Turns a key of the vocabulary into the token's bytes, or fails.
  using ReadKey = std::function<std::string(std::string_view key, int32_t id)>;
  // The bytes of a key whose characters stand for bytes; empty if one of them does not.
  static std::string bytes_of(std::string_view key);
  static std::string bytes_or_fail(std::string_view key, const char* file, int32_t id);

  static int32_t id_of(const Json& id, size_t count, const char* file);
  // Gives each token its place; `count`: tokens of the vocabulary and added ones.
  static void read_vocab(const Json& vocab, size_t count, const char* file, const ReadKey& read,
                         Parts& parts);
  // "left right", as a line of merges.txt or an entry of tokenizer.json.
  static void add_merge_line(const Index& vocab, std::string_view line, const char* file,
                             size_t number, Parts& parts);
  static void add_merge(const Index& vocab, const std::string& left, const std::string& right,
                        const char* file, size_t number, Parts& parts);
  static void read_merges_txt(const Index& vocab, std::string_view text, Parts& parts);
  // Makes it special wherever the vocabulary has it, as transformers does.
  static void add_end_of_text(const Index& vocab, Parts& parts);
  // A token of WordPiece in Parts: with a space where a word begins.
  static std::string word_of(std::string_view key, std::string_view prefix);
};

}  // namespace split
