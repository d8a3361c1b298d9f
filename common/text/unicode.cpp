#include "text/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/sort.h"
#include "text/utf8.h"

namespace split {
namespace {

constexpr char32_t kByte = 0x110000;  // plus the byte: one that is not UTF-8

struct Kind {
  uint32_t first, last;
  char kind;
};
constexpr char M = 'M', P = 'P', C = 'C';
constexpr Kind kKinds[] = {
#include "text/unicode_marks.inc"
};

struct Class {
  uint32_t first, last;
  uint8_t order;
};
constexpr Class kClasses[] = {
#include "text/unicode_classes.inc"
};

struct Lower {
  uint32_t first, last, step;
  int32_t delta;
};
constexpr Lower kLower[] = {
#include "text/unicode_lower.inc"
};

struct CodeParts {
  uint32_t code, first, second;
  int composes;
};
constexpr CodeParts kParts[] = {
#include "text/unicode_parts.inc"
};

// The row of a table of ranges that holds `code`, or null.
template <typename Row, size_t N>
const Row* row_of(const Row (&rows)[N], char32_t code) {
  const Row* row = std::upper_bound(
      std::begin(rows), std::end(rows), code,
      [](char32_t wanted, const Row& candidate) { return wanted < candidate.first; });
  return row == std::begin(rows) || code > (--row)->last ? nullptr : row;
}

char kind_of(char32_t code) {
  const Kind* row = row_of(kKinds, code);
  return row == nullptr ? '\0' : row->kind;
}

uint8_t class_of(char32_t code) {
  const Class* row = code < 0x300 ? nullptr : row_of(kClasses, code);
  return row == nullptr ? 0 : row->order;
}

// Hangul syllables are computed (The Unicode Standard, section 3.12).
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kLs = 19, kVs = 21, kTs = 28, kSs = kLs * kVs * kTs;

void append_parts(char32_t code, CodePoints& out) {
  if (code < 0xC0) return out.push_back(code);
  if (code - kS < kSs) {
    const char32_t index = code - kS, tail = index % kTs;
    out.push_back(kL + index / (kVs * kTs));
    out.push_back(kV + index / kTs % kVs);
    if (tail > 0) out.push_back(kT + tail);
    return;
  }
  const CodeParts* row =
      std::lower_bound(std::begin(kParts), std::end(kParts), code,
                       [](const CodeParts& a, char32_t b) { return a.code < b; });
  if (row == std::end(kParts) || row->code != code) return out.push_back(code);
  append_parts(row->first, out);  // at most four deep
  if (row->second != 0) append_parts(row->second, out);
}

// The composite of two characters, or 0.
char32_t composed(char32_t first, char32_t second) {
  if (first - kL < kLs && second - kV < kVs) {
    return kS + ((first - kL) * kVs + (second - kV)) * kTs;
  }
  if (first - kS < kSs && (first - kS) % kTs == 0 && second - kT - 1 < kTs - 1) {
    return first + (second - kT);
  }
  static const std::vector<CodeParts> pairs = [] {
    std::vector<CodeParts> all;
    std::ranges::copy_if(kParts, std::back_inserter(all),
                         [](const CodeParts& p) { return p.composes; });
    sort_stably(all, [](const CodeParts& a, const CodeParts& b) {
      return a.first != b.first ? a.first < b.first : a.second < b.second;
    });
    return all;
  }();
  const auto found = std::lower_bound(
      pairs.begin(), pairs.end(), std::pair(first, second),
      [](const CodeParts& row, const std::pair<char32_t, char32_t>& wanted) {
        return row.first != wanted.first ? row.first < wanted.first : row.second < wanted.second;
      });
  if (found == pairs.end() || found->first != first || found->second != second) return 0;
  return found->code;
}

// Puts each run of marks into the order of their classes.
void order_marks(CodePoints& codes) {
  for (size_t begin = 0; begin < codes.size();) {
    size_t end = begin;
    while (end < codes.size() && class_of(codes[end]) != 0) ++end;
    sort_stably(std::span(codes).subspan(begin, end - begin), {}, class_of);
    begin = end + 1;
  }
}

}  // namespace

CodePoints code_points(std::string_view text) {
  CodePoints codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = utf8_first(text);
    if (c.status == Utf8Status::kValid) {
      codes.push_back(c.code);
    } else {
      for (size_t i = 0; i < c.length; ++i) {
        codes.push_back(kByte + static_cast<unsigned char>(text[i]));
      }
    }
    text.remove_prefix(c.length);
  }
  return codes;
}

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80 || code >= kByte) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::string utf8_of(const CodePoints& codes) {
  std::string out;
  out.reserve(codes.size());
  for (const char32_t code : codes) append_utf8(code, out);
  return out;
}

CodePoints nfd(const CodePoints& codes) {
  CodePoints out;
  out.reserve(codes.size());
  for (const char32_t code : codes) append_parts(code, out);
  order_marks(out);
  return out;
}

CodePoints nfc(const CodePoints& codes) {
  CodePoints out = nfd(codes);
  size_t kept = 0;
  ptrdiff_t starter = -1;
  int before = -1;  // the class of the last character kept behind the starter; -1: none
  for (const char32_t code : out) {
    const int order = class_of(code);
    if (starter >= 0 && before < order) {
      if (const char32_t both = composed(out[static_cast<size_t>(starter)], code); both != 0) {
        out[static_cast<size_t>(starter)] = both;
        continue;
      }
    }
    if (order == 0) {
      starter = static_cast<ptrdiff_t>(kept);
      before = -1;
    } else {
      before = order;
    }
    out[kept++] = code;
  }
  out.resize(kept);
  return out;
}

std::string nfc(std::string_view text) {
  // Nothing below U+0300 changes; its first byte is 0xCC.
  const auto stays = [](char c) { return static_cast<unsigned char>(c) < 0xCC; };
  if (std::ranges::all_of(text, stays)) return std::string(text);
  return utf8_of(nfc(code_points(text)));
}

void append_lower(char32_t code, CodePoints& out) {
  if (code == 0x130) {
    out.push_back('i');
    return out.push_back(0x307);
  }
  const Lower* row = row_of(kLower, code);
  const bool moves = row != nullptr && (code - row->first) % row->step == 0;
  out.push_back(moves ? static_cast<char32_t>(static_cast<int32_t>(code) + row->delta) : code);
}

void append_upper(char32_t code, CodePoints& out) {
  if (code == 0xDF) return out.insert(out.end(), 2, 'S'), void();
  // The first row with this lower case: the table ascends, capitals come before title case.
  for (const Lower& row : kLower) {
    const auto capital = static_cast<char32_t>(static_cast<int32_t>(code) - row.delta);
    if (capital < row.first || capital > row.last || (capital - row.first) % row.step != 0)
      continue;
    return out.push_back(capital);
  }
  out.push_back(code);
}

bool is_nonspacing_mark(char32_t code) { return kind_of(code) == M; }
bool is_punctuation(char32_t code) { return kind_of(code) == P; }
bool is_other(char32_t code) { return kind_of(code) == C; }

}  // namespace split
