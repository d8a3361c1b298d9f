// WordPiece: BERT's normaliser, and the longest parts of words from the left.
#include <algorithm>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace split {
namespace {

// The ideographs that BERT's normaliser sets apart, to the letter: U+2B820 to U+2B91F are not.
bool is_ideograph(char32_t code) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(
      kRanges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

bool ends_word(char32_t code) {
  const bool ascii = (code >= 33 && code <= 47) || (code >= 58 && code <= 64) ||
                     (code >= 91 && code <= 96) || (code >= 123 && code <= 126);
  return ascii || is_punctuation(code);
}

bool is_space(char32_t code) { return char_class(code) == CharClass::kSpace; }

// Cleans each token up like the WordPiece decoder of Hugging Face's tokenizers.
std::string cleaned(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) text = replaced(std::move(text), from, to);
  return text;
}

}  // namespace

void Tokenizer::clean_up_words() {
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view bytes = token_bytes(id);
    std::string clean = cleaned(std::string(bytes));
    if (clean != bytes) clean_.emplace(id, std::move(clean));
  }
}

// Normalises like BERT's normaliser, in its order.
std::vector<char32_t> Tokenizer::normalized_words(std::string_view text) const {
  CodePoints codes;
  codes.reserve(text.size());
  for (char32_t code : code_points(text)) {
    if (file_.words.clean) {
      const bool white = code == '\t' || code == '\n' || code == '\r' || is_space(code);
      const bool control = code != '\t' && code != '\n' && code != '\r' && is_other(code);
      // Bytes that are not UTF-8 are U+FFFD in a text.
      if (code == 0 || code == 0xFFFD || code > 0x10FFFF || control) continue;
      if (white) code = ' ';
    }
    const bool apart = file_.words.spaced_ideographs && is_ideograph(code);
    if (apart) codes.push_back(' ');
    codes.push_back(code);
    if (apart) codes.push_back(' ');
  }
  if (file_.words.no_accents) {
    codes = nfd(codes);
    std::erase_if(codes, is_nonspacing_mark);
  }
  if (file_.words.lower_case) {
    CodePoints lower;
    lower.reserve(codes.size());
    for (const char32_t code : codes) append_lower(code, lower);
    codes = std::move(lower);
  }
  return codes;
}

void Tokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  std::string word;
  size_t characters = 0;
  const auto flush = [&] {
    if (characters > 0) encode_word(word, characters, ids);
    word.clear();
    characters = 0;
  };
  for (const char32_t code : normalized_words(text)) {
    if (is_space(code)) {
      flush();
      continue;
    }
    const bool alone = ends_word(code);
    if (alone) flush();
    append_utf8(code, word);
    ++characters;
    if (alone) flush();
  }
  flush();
}

// Takes the longest token from the left repeatedly; a word with an unknown part is one token.
void Tokenizer::encode_word(std::string_view word, size_t characters,
                            std::vector<int32_t>& ids) const {
  if (characters > file_.words.longest_word) return ids.push_back(file_.words.unknown);
  const size_t begin = ids.size();
  std::string key = " ";
  while (!word.empty()) {
    size_t length = std::min(word.size(), longest_);
    key += word.substr(0, length);
    int32_t id = -1;
    for (;;) {
      // Cuts between characters alone.
      if (length == word.size() || (word[length] & 0xC0) != 0x80) id = id_of(key);
      if (id >= 0 || length == 1) break;
      key.pop_back();
      --length;
    }
    if (id < 0) {
      ids.resize(begin);
      return ids.push_back(file_.words.unknown);
    }
    ids.push_back(id);
    word.remove_prefix(length);
    key = file_.words.prefix;
  }
}

}  // namespace split
