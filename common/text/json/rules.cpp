#include "text/json/rules.h"

#include <algorithm>

#include "base/error.h"
#include "text/json/quoted.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace split {
namespace {

constexpr size_t kMostDigits = 15;   // digits that a double holds
constexpr size_t kMostExponent = 2;  // digits

ByteSet range(int low, int high) {
  ByteSet set;
  for (int byte = low; byte <= high; ++byte) set.set(static_cast<size_t>(byte));
  return set;
}

ByteSet any_of(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<uint8_t>(c));
  return set;
}

// Bytes that may stand in a text beside wide characters.
ByteSet text_bytes() { return range(0x20, 0x7e) | any_of("\t\n\r"); }

}  // namespace

JsonRules::Sequence JsonRules::join(std::initializer_list<Sequence> parts) {
  Sequence all;
  for (const Sequence& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

JsonRules::Symbol JsonRules::either(const std::vector<Sequence>& alternatives) {
  const uint32_t rule = grammar_.add_rule();
  for (const Sequence& one : alternatives) grammar_.add(rule, one);
  return Grammar::rule(rule);
}

JsonRules::Symbol JsonRules::bytes(std::string_view any) { return grammar_.bytes(any_of(any)); }

JsonRules::Symbol JsonRules::many(const Sequence& one) {
  const uint32_t rule = grammar_.add_rule();
  grammar_.add(rule, {});
  grammar_.add(rule, join({one, {Grammar::rule(rule)}}));
  return Grammar::rule(rule);
}

JsonRules::Symbol JsonRules::at_most(const Symbol& one, size_t count) {
  Symbol rest = either({{}});
  for (size_t i = 0; i < count; ++i) rest = either({{}, {one, rest}});
  return rest;
}

JsonRules::Symbol JsonRules::space() {
  return once("space", [&](uint32_t rule) {
    grammar_.add(rule, {});
    grammar_.add(rule, lit(" "));
  });
}

// A character of several bytes, in valid UTF-8.
JsonRules::Symbol JsonRules::wide_character() {
  return once("wide character", [&](uint32_t rule) {
    const auto set = [&](int low, int high) { return grammar_.bytes(range(low, high)); };
    const Symbol tail = set(0x80, 0xbf);
    grammar_.add(rule, {set(0xc2, 0xdf), tail});
    grammar_.add(rule, {set(0xe0, 0xe0), set(0xa0, 0xbf), tail});
    grammar_.add(rule, {set(0xe1, 0xec), tail, tail});
    grammar_.add(rule, {set(0xed, 0xed), set(0x80, 0x9f), tail});
    grammar_.add(rule, {set(0xee, 0xef), tail, tail});
    grammar_.add(rule, {set(0xf0, 0xf0), set(0x90, 0xbf), tail, tail});
    grammar_.add(rule, {set(0xf1, 0xf3), tail, tail, tail});
    grammar_.add(rule, {set(0xf4, 0xf4), set(0x80, 0x8f), tail, tail});
  });
}

JsonRules::Symbol JsonRules::character() {
  return once("character", [&](uint32_t rule) {
    ByteSet plain = range(0x20, 0x7e);
    plain &= ~any_of("\"\\");
    const Symbol hex = grammar_.bytes(any_of("0123456789abcdefABCDEF"));
    grammar_.add(rule, {grammar_.bytes(plain)});
    grammar_.add(rule, join({lit("\\"), {grammar_.bytes(any_of("\"\\/bfnrt"))}}));
    // No surrogates: \ud800 to \udfff.
    const Symbol no_d = grammar_.bytes(any_of("0123456789abcefABCEF"));
    grammar_.add(rule, join({lit("\\u"), {no_d, hex, hex, hex}}));
    grammar_.add(rule, {wide_character()});
  });
}

JsonRules::Symbol JsonRules::one_of(const Characters& some) {
  std::string name = "one of";
  for (const auto& [first, last] : some) name += cat(" ", uint32_t{first}, "-", uint32_t{last});
  return once(name, [&](uint32_t rule) {
    if (some.empty()) throw Error(ErrorKind::kInput, "no character");
    ByteSet plain;
    const auto utf8 = [](char32_t code) {
      std::string out;
      append_utf8(code, out);
      return out;
    };
    for (auto [first, last] : some) {
      for (; first <= std::min<char32_t>(last, 0x7f); ++first) {
        const std::string quoted = json_quote(utf8(first));
        quoted.size() == 3
            ? void(plain.set(first))
            : grammar_.add(rule, lit(std::string_view(quoted).substr(1, quoted.size() - 2)));
      }
      for (const char32_t end : {0x7ff, 0xffff, 0x10ffff}) {  // last of 2, 3, 4 bytes in UTF-8
        if (first > std::min(last, end)) continue;
        grammar_.add(rule, {span(utf8(first), utf8(std::min(last, end)), '\x80', '\xbf')});
        first = end + 1;
      }
    }
    if (plain.any()) grammar_.add(rule, {grammar_.bytes(plain)});
  });
}

JsonRules::Sequence JsonRules::written(const Json& value) {
  return lit(is_quoted() ? quoted_json(value, quote_) : value.dump());
}

JsonRules::Sequence JsonRules::name(std::string_view text) {
  return lit(is_quoted() ? quoted_name(text) : json_quote(text));
}

JsonRules::Symbol JsonRules::any_name() {
  if (!is_quoted()) return string(0, {});
  return once("name", [&](uint32_t rule) {
    const Symbol letter = character_but(kNoNameBytes);
    grammar_.add(rule, {letter, many({letter})});
  });
}

JsonRules::Symbol JsonRules::string(int64_t least, std::optional<int64_t> most) {
  if (is_quoted()) return either({join({lit(quote_), {text_until(quote_)}})});
  return once(cat("string ", least, " ", most ? cat(*most) : ""), [&](uint32_t rule) {
    const Symbol one = character();
    // Built from the end: the end, or one more and then the rest.
    Symbol rest = most ? either({lit("\"")}) : either({join({{many({one})}, lit("\"")})});
    for (int64_t at = most.value_or(least); at > 0; --at) {
      std::vector<Sequence> alternatives = {{one, rest}};
      if (at > least) alternatives.push_back(lit("\""));
      rest = either(alternatives);
    }
    grammar_.add(rule, join({lit("\""), {rest}}));
  });
}

// Behind so many bytes of the mark, the next byte extends it, or leads to the longest part of it
// that the text then ends with.
JsonRules::Symbol JsonRules::text_until(std::string_view mark) {
  return once(cat("until ", mark), [&](uint32_t rule) {
    std::vector<uint32_t> behind = {rule};  // number of the mark's bytes -> rule
    while (behind.size() < mark.size()) behind.push_back(grammar_.add_rule());
    for (size_t n = 0; n < mark.size(); ++n) {
      std::map<size_t, ByteSet> next;
      for (size_t byte = 0; byte < 0x80; ++byte) {
        if (!text_bytes().test(byte)) continue;
        const std::string seen = std::string(mark.substr(0, n)) + static_cast<char>(byte);
        size_t left = seen.size();
        while (!seen.ends_with(mark.substr(0, left))) --left;
        next[left].set(byte);
      }
      for (const auto& [left, set] : next) {
        Sequence one = {grammar_.bytes(set)};
        if (left < mark.size()) one.push_back(Grammar::rule(behind[left]));
        grammar_.add(behind[n], one);
      }
      grammar_.add(behind[n], {wide_character(), Grammar::rule(rule)});
    }
  });
}

JsonRules::Symbol JsonRules::character_but(std::string_view none) {
  return either({{grammar_.bytes(text_bytes() & ~any_of(none))}, {wide_character()}});
}

JsonRules::Symbol JsonRules::digit(char low, char high) {
  return grammar_.bytes(range(static_cast<uint8_t>(low), static_cast<uint8_t>(high)));
}

JsonRules::Symbol JsonRules::digits(size_t least, size_t most) {
  return once(cat("digits ", least, " ", most), [&](uint32_t rule) {
    Sequence all(least, digit());
    all.push_back(at_most(digit(), most - least));
    grammar_.add(rule, all);
  });
}

JsonRules::Symbol JsonRules::number(bool negative) {
  return once(negative ? "number" : "number from 0", [&](uint32_t rule) {
    const Symbol sign = negative ? either({{}, lit("-")}) : either({{}});
    const Symbol more = digits(0, kMostDigits - 1);
    const Symbol front = either({lit("0"), {digit('1'), more}});
    const Symbol fraction = either({{}, join({lit("."), {digit(), more}})});
    const Symbol power =
        either({{},
                {grammar_.bytes(any_of("eE")), either({{}, {grammar_.bytes(any_of("+-"))}}),
                 digits(1, kMostExponent)}});
    grammar_.add(rule, {sign, front, fraction, power});
  });
}

JsonRules::Symbol JsonRules::integer(int64_t low, int64_t high) {
  CHECK(-kMostBound <= low && low <= high && high <= kMostBound);
  return once(cat("integer ", low, " ", high), [&](uint32_t rule) {
    const auto positive = [](int64_t value) {
      return static_cast<uint64_t>(std::max<int64_t>(0, value));
    };
    if (high >= 0) grammar_.add(rule, {naturals(positive(low), positive(high))});
    if (low < 0) {
      const uint64_t least = std::max<uint64_t>(1, positive(-high));
      grammar_.add(rule, join({lit("-"), {naturals(least, positive(-low))}}));
    }
  });
}

JsonRules::Symbol JsonRules::decimal(const Bound& low, const Bound& high, size_t places) {
  const std::string name =
      cat("decimal ", low.scaled, low.open ? " < " : " <= ", high.open ? "< " : "<= ", high.scaled,
          " ", places);
  return once(name, [&](uint32_t rule) {
    const Bound above = low.scaled < 0 ? Bound{} : low;
    if (high.scaled > 0 || (high.scaled == 0 && !high.open))
      grammar_.add(rule, {magnitudes(above, high, places)});
    const Bound below = high.scaled < 0 ? Bound{-high.scaled, high.open} : Bound{0, true};
    if (low.scaled < 0)
      grammar_.add(rule, join({lit("-"), {magnitudes(below, {-low.scaled, low.open}, places)}}));
  });
}

// Numbers with fewer digits behind the point than the bounds, with as many, and with more.
JsonRules::Symbol JsonRules::magnitudes(const Bound& low, const Bound& high, size_t places) {
  std::vector<Sequence> all;
  const auto between = [&](int64_t first, int64_t last, size_t digits_behind,
                           const Sequence& more) {
    if (first > last) return;
    const auto from = static_cast<uint64_t>(first), to = static_cast<uint64_t>(last);
    all.push_back(join({{naturals(from, to, digits_behind)}, more}));
  };
  int64_t unit = 1;
  for (size_t left = places + 1; left-- > 0; unit *= 10) {
    int64_t first = (low.scaled + unit - 1) / unit, last = high.scaled / unit;
    if (low.open && first * unit == low.scaled) ++first;
    if (high.open && last * unit == high.scaled) --last;
    between(first, last, left, {});
  }
  const Sequence point = places == 0 ? lit(".") : Sequence{};
  const Symbol zero = digit('0', '0'), further = digits(0, kMostDigits - 1);
  between(low.scaled + (low.open ? 1 : 0), high.scaled - 1, places,
          join({point, {digit(), further}}));
  if (low.open && low.scaled < high.scaled) {
    between(low.scaled, low.scaled, places,
            join({point, {at_most(zero, kMostPlaces), digit('1'), further}}));
  }
  if (!high.open && (!low.open || low.scaled < high.scaled)) {
    between(high.scaled, high.scaled, places, join({point, {zero, at_most(zero, kMostPlaces)}}));
  }
  return either(all);
}

// Numbers with as many digits as `low`, with as many as `high`, and with numbers between.
JsonRules::Symbol JsonRules::naturals(uint64_t low, uint64_t high, size_t places) {
  const auto written = [places](uint64_t value) {
    const std::string digits = cat(value);
    return std::string(digits.size() > places ? 0 : places + 1 - digits.size(), '0') + digits;
  };
  const std::string first = written(low), last = written(high);
  if (first.size() == last.size()) return span(first, last, '0', '9', places);
  std::vector<Sequence> alternatives = {
      {span(first, std::string(first.size(), '9'), '0', '9', places)},
      {span("1" + std::string(last.size() - 1, '0'), last, '0', '9', places)}};
  if (last.size() - first.size() > 1) {
    const Symbol whole = digits(first.size() - places, last.size() - 2 - places);
    const Sequence behind = places == 0 ? Sequence{} : join({lit("."), {digits(places, places)}});
    alternatives.push_back(join({{digit('1'), whole}, behind}));
  }
  return either(alternatives);
}

// Digits from `low` to `high`, of equal length, or bytes between these behind the first.
JsonRules::Symbol JsonRules::span(const std::string& low, const std::string& high, char zero,
                                  char nine, size_t places) {
  const std::string zeros(low.size(), zero), nines(low.size(), nine);
  const Sequence point =
      places > 0 && low.size() == places + 1 ? lit(".") : Sequence{};  // behind the first
  const auto behind = [](const std::string& digits) { return digits.substr(1); };
  const auto then = [&](char from, char to, const std::string& least, const std::string& most) {
    return join({{digit(from, to)}, point, {span(least, most, zero, nine, places)}});
  };
  char from = low[0], to = high[0];
  if (low.size() == 1) return either({{digit(from, to)}});
  if (places == 0 && low == zeros && high == nines)
    return either({Sequence(low.size(), digit(zero, nine))});
  if (from == to) return either({then(from, to, behind(low), behind(high))});
  std::vector<Sequence> alternatives;
  if (behind(low) != behind(zeros)) {
    alternatives.push_back(then(from, from, behind(low), behind(nines)));
    ++from;
  }
  if (behind(high) != behind(nines)) {
    alternatives.push_back(then(to, to, behind(zeros), behind(high)));
    --to;
  }
  if (from <= to) alternatives.push_back(then(from, to, behind(zeros), behind(nines)));
  return either(alternatives);
}

// Allows a repeated name: readers take the last one.
void JsonRules::members(uint32_t rule, Symbol name, Symbol value) {
  const Sequence member = join({{name}, lit(":"), {space(), value}});
  const Symbol more = many(join({lit(","), {space()}, member}));
  grammar_.add(rule, lit("{}"));
  grammar_.add(rule, join({lit("{"), member, {more}, lit("}")}));
}

JsonRules::Symbol JsonRules::object(Symbol name, Symbol value) {
  const uint32_t rule = grammar_.add_rule();
  members(rule, name, value);
  return Grammar::rule(rule);
}

JsonRules::Symbol JsonRules::any_object() {
  return once(
      "object", [&](uint32_t rule) { members(rule, any_name(), any_value()); }, true);
}

JsonRules::Symbol JsonRules::any_value() {
  return once("value", [&](uint32_t rule) {
    grammar_.add(rule, {string(0, {})});
    grammar_.add(rule, {number(true)});
    for (const char* word : {"true", "false", "null"}) grammar_.add(rule, lit(word));
    grammar_.add(rule, {any_object()});
    const auto list = [&](uint32_t at) {
      grammar_.add(at, {array({}, Grammar::rule(rule), 0, {})});
    };
    grammar_.add(rule, {once("array", list, true)});
  });
}

JsonRules::Symbol JsonRules::array(const std::vector<Symbol>& first, Symbol item, int64_t least,
                                   std::optional<int64_t> most) {
  const auto next = [&](Symbol one) { return join({lit(","), {space(), one}}); };
  Symbol rest = most ? either({lit("]")}) : either({join({{many(next(item))}, lit("]")})});
  const auto beginning = static_cast<int64_t>(first.size());
  for (int64_t at = most.value_or(std::max({least, beginning, int64_t{1}})); at > 0; --at) {
    const Symbol one = at <= beginning ? first[static_cast<size_t>(at) - 1] : item;
    std::vector<Sequence> alternatives = {join({at == 1 ? Sequence{one} : next(one), {rest}})};
    if (at > least) alternatives.push_back(lit("]"));
    rest = either(alternatives);
  }
  return either({join({lit("["), {rest}})});
}

Grammar JsonRules::take(Symbol text) {
  grammar_.add(text_, {text});
  grammar_.finish();
  return std::move(grammar_);
}

}  // namespace split
