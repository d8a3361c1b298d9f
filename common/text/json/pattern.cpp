#include "text/json/pattern.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/sort.h"
#include "text/utf8.h"

namespace split {
namespace {

using Characters = JsonRules::Characters;
using Sequence = JsonRules::Sequence;

constexpr size_t kMostTimes = 1024, kMostNested = 64;
constexpr size_t kPartOfRoom = 4;  // a pattern's repetitions leave three quarters to its schema

[[noreturn]] void refuse() { throw Error(ErrorKind::kInput, "a pattern that is not known here"); }

Characters all_but(Characters some) {
  some.emplace_back(0xD800, 0xDFFF);
  sort_stably(some);
  Characters out;
  char32_t from = 0;
  for (const auto& [first, last] : some) {
    if (first > from) out.emplace_back(from, first - 1);
    from = std::max<char32_t>(from, last + 1);
  }
  if (from <= 0x10FFFF) out.emplace_back(from, 0x10FFFF);
  return out;
}

class PatternReader {
 public:
  PatternReader(JsonRules& rules, std::string_view text)
      : rules_(rules), text_(text), times_left_(rules.room() / kPartOfRoom) {}

  PatternRule read() {
    PatternRule all = alternatives(true);
    if (at_ < text_.size()) refuse();
    return all;
  }

 private:
  bool take(std::string_view mark) {
    const bool there = text_.substr(at_).starts_with(mark);
    if (there) at_ += mark.size();
    return there;
  }
  static size_t times(size_t a, size_t b) {
    size_t all = 0;
    return __builtin_mul_overflow(a, b, &all) ? SIZE_MAX : all;
  }
  static size_t sum(size_t a, size_t b) { return a > SIZE_MAX - b ? SIZE_MAX : a + b; }

  PatternRule alternatives(bool whole) {
    std::vector<Sequence> all;
    PatternRule made{{}, SIZE_MAX, 0};
    do {
      const PatternRule one = alternative(whole);
      all.push_back({one.text});
      made.least = std::min(made.least, one.least);
      made.most = std::max(made.most, one.most);
    } while (take("|"));
    made.text = rules_.either(all);
    return made;
  }

  // Reads one alternative. In the whole pattern, without ^ or $, anything may stand before or
  // behind it.
  PatternRule alternative(bool whole) {
    Sequence all;
    PatternRule made{{}, 0, 0};
    const auto anything = [&] {
      all.push_back(rules_.many({rules_.character()}));
      made.most = SIZE_MAX;
    };
    if (whole && !take("^")) anything();
    bool ends = false;
    while (!ends && at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      ends = whole && (text_.substr(at_) == "$" || text_.substr(at_).starts_with("$|"));
      if (ends) {
        ++at_;
        continue;
      }
      const PatternRule one = repeated();
      all.push_back(one.text);
      made.least = sum(made.least, one.least);
      made.most = sum(made.most, one.most);
    }
    if (whole && !ends) anything();
    made.text = rules_.either({all});
    return made;
  }

  PatternRule repeated() {
    const PatternRule one = atom();
    size_t least = 1, most = 1;
    if (take("*")) {
      least = 0, most = SIZE_MAX;
    } else if (take("+")) {
      most = SIZE_MAX;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      least = most = number(10, 4);
      if (take(",")) most = text_.substr(at_).starts_with('}') ? SIZE_MAX : number(10, 4);
      if (!take("}") || most < least || least > kMostTimes) refuse();
    } else {
      return one;
    }
    take("?");  // lazy: the texts are equal
    // A rule may not begin with itself, as an empty text any number of times would.
    if (most == SIZE_MAX ? one.least == 0 : most > kMostTimes) refuse();
    const size_t made = most == SIZE_MAX ? least : most;
    if (made > times_left_) refuse();
    times_left_ -= made;
    Sequence all(least, one.text);
    all.push_back(most == SIZE_MAX ? rules_.many({one.text})
                                   : rules_.at_most(one.text, most - least));
    return {rules_.either({all}), times(one.least, least), times(one.most, most)};
  }

  size_t number(int base, size_t most) {
    size_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto read =
        std::from_chars(begin, begin + std::min(most, text_.size() - at_), value, base);
    if (read.ec != std::errc() || (base == 16 && read.ptr != begin + most)) refuse();
    at_ += static_cast<size_t>(read.ptr - begin);
    return value;
  }

  Characters character() {
    const Utf8Char c = utf8_first(text_.substr(at_));
    if (at_ >= text_.size() || c.status != Utf8Status::kValid) refuse();
    at_ += c.length;
    return {{c.code, c.code}};
  }

  PatternRule atom() {
    if (take("(")) {
      if (take("?") && !take(":")) refuse();
      if (++depth_ > kMostNested) refuse();
      const PatternRule inner = alternatives(false);
      --depth_;
      if (!take(")")) refuse();
      return inner;
    }
    Characters some;
    if (take("[")) {
      some = set();
    } else if (take(".")) {
      some = all_but({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
    } else if (take("\\")) {
      some = escaped();
    } else if (std::string_view("^$*+?{}])").find(text_[at_]) != std::string_view::npos) {
      refuse();
    } else {
      some = character();
    }
    return {rules_.one_of(all_but(all_but(some))), 1, 1};
  }

  // Reads behind a backslash.
  Characters escaped() {
    const std::pair<char, Characters> kClasses[] = {
        {'d', {{'0', '9'}}},
        {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
        {'s',
         {{'\t', '\r'},
          {' ', ' '},
          {0xA0, 0xA0},
          {0x1680, 0x1680},
          {0x2000, 0x200A},
          {0x2028, 0x2029},
          {0x202F, 0x202F},
          {0x205F, 0x205F},
          {0x3000, 0x3000},
          {0xFEFF, 0xFEFF}}}};
    for (const auto& [letter, some] : kClasses) {
      const char other = static_cast<char>(letter - 'a' + 'A');
      if (take({&letter, 1})) return some;
      if (take({&other, 1})) return all_but(some);
    }
    constexpr std::pair<std::string_view, char32_t> kNamed[] = {
        {"t", '\t'}, {"n", '\n'}, {"v", '\v'}, {"f", '\f'}, {"r", '\r'}};
    for (const auto& [letter, c] : kNamed) {
      if (take(letter)) return {{c, c}};
    }
    if (const bool wide = take("u"); wide || take("x")) {
      const auto c = static_cast<char32_t>(number(16, wide ? 4 : 2));
      return {{c, c}};  // no character is made of a surrogate
    }
    const Characters c = character();
    const char32_t letter = c[0].first | 0x20;
    if ((letter >= 'a' && letter <= 'z') || (c[0].first >= '0' && c[0].first <= '9')) refuse();
    return c;
  }

  Characters set() {
    const bool others = take("^");
    const auto next = [&] { return take("\\") ? escaped() : character(); };
    Characters all;
    while (!take("]")) {
      Characters some = next();
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with('-') && !rest.starts_with("-]")) {
        ++at_;
        const Characters to = next();
        if (some.size() + to.size() != 2 || to[0].second < some[0].first) refuse();
        some[0].second = to[0].second;
      }
      all.insert(all.end(), some.begin(), some.end());
    }
    return others ? all_but(all) : all;
  }

  JsonRules& rules_;
  const std::string_view text_;
  size_t at_ = 0, depth_ = 0, times_left_ = 0;
};

#define YEAR "(\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)"
#define LEAP "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                   \
  "(" YEAR                                                                     \
  "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|" \
  "02-(0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME "([01]\\d|2[0-3])(:[0-5]\\d){2}(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX "[0-9a-fA-F]"

constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^" HEX "{8}(-" HEX "{4}){3}-" HEX "{12}$"},
    {"ipv4", "^(" BYTE "\\.){3}" BYTE "$"},
    // Addresses that every checker takes: short, no quotes, no brackets.
    {"email",
     "^[\\w+-]{1,20}(\\.[\\w+-]{1,20}){0,2}@"
     "([A-Za-z0-9](-?[A-Za-z0-9]){0,24}\\.){1,3}[A-Za-z]{2,18}$"}};

}  // namespace

PatternRule pattern_rule(JsonRules& rules, std::string_view pattern) {
  return PatternReader(rules, pattern).read();
}

std::string_view pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return {};
}

}  // namespace split
