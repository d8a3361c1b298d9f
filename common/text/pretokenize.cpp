#include "text/pretokenize.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "base/error.h"
#include "text/utf8.h"

namespace split {
namespace {

struct Range {
  uint32_t first, last;
  CharClass kind;
};

struct CharClasses {
  static constexpr CharClass L = CharClass::kLetter, M = CharClass::kMark, N = CharClass::kNumber,
                             S = CharClass::kSpace;
  static constexpr Range kRanges[] = {
#include "text/unicode_tables.inc"
  };
};
constexpr auto& kRanges = CharClasses::kRanges;

constexpr CharClass search(uint32_t code) {
  const Range* range = std::upper_bound(
      std::begin(kRanges), std::end(kRanges), code,
      [](uint32_t wanted, const Range& candidate) { return wanted < candidate.first; });
  if (range == std::begin(kRanges) || code > (--range)->last) return CharClass::kOther;
  return range->kind;
}

constexpr auto kAscii = [] {
  std::array<CharClass, 128> classes{};
  for (uint32_t code = 0; code < classes.size(); ++code) classes[code] = search(code);
  return classes;
}();

struct Char {
  CharClass kind;
  size_t length;
};

// `marks`: what marks count as.
Char char_at(std::string_view text, size_t at, CharClass marks = CharClass::kOther) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < kAscii.size()) return {kAscii[byte], 1};
  const Utf8Char c = utf8_first(text.substr(at));
  const CharClass kind = c.status == Utf8Status::kValid ? search(c.code) : CharClass::kOther;
  return {kind == CharClass::kMark ? marks : kind, c.length};
}

// The length of 's 't 'm 'd 're 've 'll at the start of `text`, or 0.
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (std::string_view("stmd").find(text[1]) != std::string_view::npos) return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

// Matches (?i:'s|'t|'re|'ve|'m|'ll|'d), with U+017F, whose capital is S.
size_t contraction_of_any_case(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (text.substr(1).starts_with("\u017F")) return 3;
  const auto lower = [&](size_t at) {
    return at < text.size() ? static_cast<char>(text[at] | 0x20) : '\0';
  };
  if (std::string_view("stmd").find(lower(1)) != std::string_view::npos) return 2;
  const bool two = (lower(1) == 'r' && lower(2) == 'e') || (lower(1) == 'v' && lower(2) == 'e') ||
                   (lower(1) == 'l' && lower(2) == 'l');
  return two ? 3 : 0;
}

// The end of the run of `kind` from `at` on; `last` becomes the start of its last character.
size_t run_end(std::string_view text, size_t at, CharClass kind, size_t* last = nullptr,
               CharClass marks = CharClass::kOther) {
  while (at < text.size()) {
    const Char c = char_at(text, at, marks);
    if (c.kind != kind) break;
    if (last != nullptr) *last = at;
    at += c.length;
  }
  return at;
}

template <bool kDigits>
size_t gpt2_piece(std::string_view text) {
  if (const size_t length = contraction(text); length > 0) return length;
  size_t at = 0;
  Char c = char_at(text, 0);
  if (kDigits && c.kind == CharClass::kNumber) return c.length;
  if (text[0] == ' ' && text.size() > 1) {
    const Char second = char_at(text, 1);
    if (kDigits && second.kind == CharClass::kNumber) return 1;
    if (second.kind != CharClass::kSpace) {
      at = 1;
      c = second;
    }
  }
  const CharClass kind = c.kind;
  size_t last = at;  // start of the run's last character
  while (true) {
    last = at;
    at += c.length;
    if (at == text.size()) return at;
    c = char_at(text, at);
    if (c.kind != kind) break;
  }
  // Spaces before other text leave their last one to it, unless there is only one: \s+(?!\S)|\s+. A
  // digit is no neighbour if digits were cut out before.
  if (kDigits && c.kind == CharClass::kNumber) return at;
  return kind == CharClass::kSpace && last > 0 ? last : at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t spaces(std::string_view text) {
  size_t last = 0;
  const size_t end = run_end(text, 0, CharClass::kSpace, &last);
  const size_t newline = text.substr(0, end).find_last_of("\r\n");
  if (newline != std::string_view::npos) return newline + 1;
  return end < text.size() && last > 0 ? last : end;
}

size_t llama3_piece(std::string_view text, int digits, CharClass marks = CharClass::kOther) {
  if (const size_t length = contraction_of_any_case(text); length > 0) return length;
  const Char c = char_at(text, 0, marks);
  const auto word_end = [&](size_t at) {
    return run_end(text, at, CharClass::kLetter, nullptr, marks);
  };
  if (c.kind == CharClass::kLetter) return word_end(0);
  const bool newline = text[0] == '\r' || text[0] == '\n';
  if (c.kind != CharClass::kNumber && !newline) {
    const size_t end = word_end(c.length);
    if (end > c.length) return end;
  }
  if (c.kind == CharClass::kNumber) {
    size_t at = c.length;
    for (int more = digits - 1; more > 0 && at < text.size(); --more) {
      const Char next = char_at(text, at);
      if (next.kind != CharClass::kNumber) break;
      at += next.length;
    }
    return at;
  }
  const size_t begin = text[0] == ' ' ? 1 : 0;
  size_t end = run_end(text, begin, CharClass::kOther, nullptr, marks);
  if (end == begin) return spaces(text);
  while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
  return end;
}

}  // namespace

CharClass char_class(char32_t code) { return search(code); }

size_t white_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const Utf8Char c = utf8_first(text.substr(length));
    if (char_class(c.code) != CharClass::kSpace) break;
    length += c.length;
  }
  return length;
}

size_t length_stripped(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_first(text.substr(at));
    at += c.length;
    if (char_class(c.code) != CharClass::kSpace) end = at;
  }
  return end;
}

size_t first_piece(std::string_view text, Cut cut) {
  CHECK(!text.empty());
  switch (cut) {
    case Cut::kGpt2:
      return gpt2_piece<false>(text);
    case Cut::kDigitsGpt2:
      return gpt2_piece<true>(text);
    case Cut::kLlama3:
      return llama3_piece(text, 3);
    case Cut::kQwen2:
      return llama3_piece(text, 1);
    case Cut::kQwen35:
      return llama3_piece(text, 1, CharClass::kLetter);
  }
  return 0;
}

}  // namespace split
