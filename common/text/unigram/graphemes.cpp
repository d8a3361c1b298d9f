#include "text/unigram/graphemes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/unicode.h"
#include "text/utf8.h"

// A namespace of its own: unicode.cpp uses the tables' letters for other classes.
namespace split::graphemes {
namespace {

enum Break : uint8_t {
  kControl,
  kPrepend,
  kSpacingMark,
  kExtend,
  kPictographic,
  kOther,
  kCr,
  kLf,
  kJoiner,  // ZWJ
  kRegional,
  kLead,      // Hangul L
  kVowel,     // Hangul V
  kTrail,     // Hangul T
  kOpen,      // Hangul LV
  kSyllable,  // Hangul LVT
};

// The letters of the table.
constexpr Break C = kControl, B = kPrepend, S = kSpacingMark, E = kExtend, P = kPictographic;

struct Range {
  char32_t first, last;
  Break kind;
};
constexpr Range kRanges[] = {
#include "text/unigram/graphemes.inc"
};

Break break_of(char32_t code) {
  const auto in = [code](char32_t first, char32_t last) { return code >= first && code <= last; };
  if (code == '\r') return kCr;
  if (code == '\n') return kLf;
  if (code < 0x7F) return code < 0x20 ? C : kOther;
  if (code == 0x200D) return kJoiner;
  if (in(0x1100, 0x115F) || in(0xA960, 0xA97C)) return kLead;
  if (in(0x1160, 0x11A7) || in(0xD7B0, 0xD7C6)) return kVowel;
  if (in(0x11A8, 0x11FF) || in(0xD7CB, 0xD7FB)) return kTrail;
  if (in(0xAC00, 0xD7A3)) return (code - 0xAC00) % 28 == 0 ? kOpen : kSyllable;
  if (in(0x1F1E6, 0x1F1FF)) return kRegional;
  if (is_nonspacing_mark(code)) return E;  // before the table, whose ranges have some within
  const auto* row = std::ranges::upper_bound(kRanges, code, {}, &Range::first);
  return row != kRanges && code <= std::prev(row)->last ? std::prev(row)->kind : kOther;
}

size_t first_length(std::string_view text) {
  Utf8Char c = utf8_first(text);
  size_t length = c.length;
  Break before = break_of(c.code);
  bool pictographic = before == P;  // P E* so far, with a ZWJ if `before` is one
  bool odd = before == kRegional;   // an odd number of regional indicators
  while (length < text.size()) {
    c = utf8_first(text.substr(length));
    const Break next = break_of(c.code);
    bool joins = false;
    if (before == kCr || before == kLf || before == C) {
      joins = before == kCr && next == kLf;
    } else if (next == E || next == kJoiner || next == S) {
      joins = true;
    } else if (next == kCr || next == kLf || next == C) {
      joins = false;
    } else {
      joins = before == B ||
              (before == kLead &&
               (next == kLead || next == kVowel || next == kOpen || next == kSyllable)) ||
              ((before == kOpen || before == kVowel) && (next == kVowel || next == kTrail)) ||
              ((before == kSyllable || before == kTrail) && next == kTrail) ||
              (before == kJoiner && pictographic && next == P) ||
              (before == kRegional && odd && next == kRegional);
    }
    if (!joins) break;
    pictographic =
        next == P || (pictographic && (next == E || next == kJoiner) && before != kJoiner);
    odd = next == kRegional && !odd;
    before = next;
    length += c.length;
  }
  return length;
}

}  // namespace
}  // namespace split::graphemes

namespace split {

size_t first_grapheme(std::string_view text) { return graphemes::first_length(text); }

}  // namespace split
