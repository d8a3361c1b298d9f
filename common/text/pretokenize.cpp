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

constexpr CharClass L = CharClass::kLetter, N = CharClass::kNumber, S = CharClass::kSpace;
constexpr Range kRanges[] = {
#include "text/unicode_tables.inc"
};

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

Char char_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < kAscii.size()) return {kAscii[byte], 1};
  const Utf8Char c = utf8_first(text.substr(at));
  return {c.status == Utf8Status::kValid ? search(c.code) : CharClass::kOther, c.length};
}

// The length of 's 't 'm 'd 're 've 'll at the start of `text`, or 0.
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (std::string_view("stmd").find(text[1]) != std::string_view::npos) return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

}  // namespace

CharClass char_class(char32_t code) { return search(code); }

size_t first_piece(std::string_view text) {
  CHECK(!text.empty());
  if (const size_t length = contraction(text); length > 0) return length;
  size_t at = 0;
  Char c = char_at(text, 0);
  if (text[0] == ' ' && text.size() > 1) {
    const Char second = char_at(text, 1);
    if (second.kind != CharClass::kSpace) {
      at = 1;
      c = second;
    }
  }
  const CharClass kind = c.kind;
  size_t last = at;  // where the run's last character starts
  while (true) {
    last = at;
    at += c.length;
    if (at == text.size()) return at;
    c = char_at(text, at);
    if (c.kind != kind) break;
  }
  // Spaces before something else leave their last one to it, unless there is only one:
  // \s+(?!\S)|\s+
  return kind == CharClass::kSpace && last > 0 ? last : at;
}

}  // namespace split
