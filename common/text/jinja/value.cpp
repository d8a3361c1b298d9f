// Values of a run with Python's meaning.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/sort.h"
#include "text/jinja/tree.h"
#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace split::jinja {
namespace {

constexpr const char* kHex = "0123456789abcdef";

bool is_space(char32_t code) {
  return char_class(code) == CharClass::kSpace || (code >= 0x1C && code <= 0x1F);
}

// Returns the shortest digits that give the number back, in Python's layout.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char digits[64];
  const auto [end, error] =
      std::to_chars(std::begin(digits), std::end(digits), number, std::chars_format::scientific);
  CHECK(error == std::errc());
  std::string text(digits, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return text;  // at least two digits of exponent in both languages
  }
  const auto [plain, wrong] =
      std::to_chars(std::begin(digits), std::end(digits), number, std::chars_format::fixed);
  CHECK(wrong == std::errc());
  text.assign(digits, plain);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string number_text(const Value& value) {
  return value.is(Value::Kind::kFloat) ? float_text(value.number) : cat(value.integer);
}

constexpr size_t kPointed = 2 * sizeof(Member*);  // bytes for each member during the sort

std::vector<const Member*> members_of(const Value& map, bool sorted, Meter& meter) {
  std::vector<const Member*> members;
  members.reserve(map.members().size());
  for (const Member& member : map.members()) members.push_back(&member);
  if (sorted) {
    sort_stably(members, [&](auto* a, auto* b) {
      meter.bytes(4 + std::min(a->first.size(), b->first.size()));
      return a->first < b->first;
    });
  }
  return members;
}

void quote_json(std::string_view text, bool ascii, TextMade& out) {
  const auto escape = [&](char32_t unit) {
    out.add("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out.add(kHex[unit >> shift & 15]);
  };
  out.add('"');
  while (!text.empty()) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
    const Utf8Char c = utf8_first(text);
    const bool valid = c.status == Utf8Status::kValid;
    const size_t which = valid && c.length == 1 ? kNamed.find(text[0]) : kNamed.npos;
    if (which != kNamed.npos) {
      out.add('\\');
      out.add("\"\\nrtbf"[which]);
    } else if (valid && c.code < 0x20) {
      escape(c.code);
    } else if (valid && ascii && c.code > 0x7E) {
      if (c.code >= 0x10000) escape(0xD800 + ((c.code - 0x10000) >> 10));
      escape(c.code >= 0x10000 ? 0xDC00 + ((c.code - 0x10000) & 0x3FF) : c.code);
    } else {
      out.add(text.substr(0, c.length));
    }
    text.remove_prefix(c.length);
  }
  out.add('"');
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, TextMade& out) : style_(style), out_(out) {}

  void write(const Value& value, int level) {
    using K = Value::Kind;
    if (value.is(K::kNone)) {
      out_.add("null");
    } else if (value.is(K::kBoolean)) {
      out_.add(value.integer != 0 ? "true" : "false");
    } else if (value.is(K::kFloat) && !std::isfinite(value.number)) {
      out_.add(std::isnan(value.number) ? "NaN" : value.number < 0 ? "-Infinity" : "Infinity");
    } else if (value.is_number()) {
      out_.add(number_text(value));
    } else if (value.is(K::kString)) {
      quote_json(value.text(), style_.ascii, out_);
    } else if (value.is_list()) {
      list('[', ']', value.items().size(), level,
           [&](size_t i) { write(value.items()[i], level + 1); });
    } else if (value.is(K::kMap)) {
      const Held held(out_.meter(), kPointed * value.members().size());
      const std::vector<const Member*> members = members_of(value, style_.sorted, out_.meter());
      list('{', '}', members.size(), level, [&](size_t i) {
        quote_json(members[i]->first, style_.ascii, out_);
        out_.add(style_.behind_key);
        write(members[i]->second, level + 1);
      });
    } else {
      throw Error(ErrorKind::kInput,
                  cat("Object of type ", type_name(value), " is not JSON serializable"));
    }
  }

 private:
  template <typename Item>
  void list(char open, char close, size_t count, int level, const Item& item) {
    const bool lines = style_.indent >= 0 && count > 0;
    const auto line = [&](int at) {
      if (!lines) return;
      out_.add('\n');
      out_.add(std::string(static_cast<size_t>(style_.indent) * static_cast<size_t>(at), ' '));
    };
    out_.add(open);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_.add(lines && style_.between == ", " ? "," : style_.between);
      line(level + 1);
      item(i);
    }
    line(level);
    out_.add(close);
  }

  const JsonStyle& style_;
  TextMade& out_;
};

// Calls `each` with the code of each character and its place in the result.
template <typename Each>
void by_characters(std::string_view text, TextMade& out, const Each& each) {
  CodePoints codes;
  std::string made;
  while (!text.empty()) {
    const Utf8Char c = utf8_first(text);
    if (c.status == Utf8Status::kValid) {
      codes.clear();
      made.clear();
      each(c.code, codes);
      for (const char32_t code : codes) append_utf8(code, made);
      out.add(made);
    } else {
      out.add(text.substr(0, c.length));
    }
    text.remove_prefix(c.length);
  }
}

}  // namespace

const Box& Value::contents() const {
  static const Box none;
  return box == nullptr ? none : *box;
}

Value none() { return Value(Value::Kind::kNone); }
Value boolean(bool truth) { return Value(Value::Kind::kBoolean, truth ? 1 : 0); }
Value integer(int64_t number) { return Value(Value::Kind::kInteger, number); }
Value floating(double number) {
  Value value(Value::Kind::kFloat);
  value.number = number;
  return value;
}
Value boxed(Value::Kind kind, std::string text) {
  Value value(kind);
  value.box = std::make_shared<Box>();
  value.box->text = std::move(text);
  return value;
}
Value string(std::string text) { return boxed(Value::Kind::kString, std::move(text)); }
Value undefined(std::string name) { return boxed(Value::Kind::kUndefined, std::move(name)); }

bool truth(const Value& value) {
  using K = Value::Kind;
  if (value.is(K::kUndefined) || value.is(K::kNone)) return false;
  if (value.is_number()) return value.as_double() != 0;
  const bool holds = value.is(K::kString) || value.is_list() || value.is(K::kMap);
  return !holds || !value.text().empty() || !value.items().empty() || !value.members().empty();
}

bool equal(const Value& a, const Value& b, Meter& meter) {
  using K = Value::Kind;
  meter.items(1);
  if (a.is_number() && b.is_number()) {
    const bool whole = !a.is(K::kFloat) && !b.is(K::kFloat);
    return whole ? a.integer == b.integer : a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  const auto same_text = [&](const std::string& x, const std::string& y) {
    if (x.size() != y.size()) return false;
    meter.bytes(x.size());
    return x == y;
  };
  switch (a.kind) {
    case K::kUndefined:
    case K::kNone:
      return true;
    case K::kString:
      return same_text(a.text(), b.text());
    case K::kList:
    case K::kTuple:
      return a.box == b.box ||
             std::ranges::equal(a.items(), b.items(),
                                [&](const Value& x, const Value& y) { return equal(x, y, meter); });
    case K::kMap: {
      if (a.box == b.box) return true;
      if (a.members().size() != b.members().size()) return false;
      const Held held(meter, 2 * kPointed * a.members().size());
      return std::ranges::equal(
          members_of(a, true, meter), members_of(b, true, meter), [&](auto* x, auto* y) {
            return same_text(x->first, y->first) && equal(x->second, y->second, meter);
          });
    }
    default:
      return a.box == b.box;
  }
}

const char* type_name(const Value& value) {
  // In the order of Value::Kind.
  constexpr const char* kNames[] = {"Undefined", "NoneType",    "bool",     "int",     "float",
                                    "str",       "list",        "tuple",    "dict",    "Namespace",
                                    "Macro",     "LoopContext", "function", "function"};
  return kNames[static_cast<size_t>(value.kind)];
}

namespace {

void quote(const std::string& text, TextMade& out) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out.add(quote);
  for (const char c : text) {
    constexpr std::string_view kNamed = "\n\r\t\\";
    if (const size_t which = kNamed.find(c); which != kNamed.npos) {
      out.add('\\');
      out.add("nrt\\"[which]);
    } else if (c == quote) {
      out.add('\\');
      out.add(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out.add("\\x");
      out.add(kHex[c >> 4 & 15]);
      out.add(kHex[c & 15]);
    } else {
      out.add(c);
    }
  }
  out.add(quote);
}

}  // namespace

void repr(const Value& value, TextMade& out) {
  using K = Value::Kind;
  out.meter().items(1);
  switch (value.kind) {
    case K::kUndefined:
      return out.add("Undefined");
    case K::kNone:
      return out.add("None");
    case K::kBoolean:
      return out.add(value.integer != 0 ? "True" : "False");
    case K::kInteger:
    case K::kFloat:
      return out.add(number_text(value));
    case K::kString:
      return quote(value.text(), out);
    case K::kList:
    case K::kTuple: {
      const bool list = value.is(K::kList);
      out.add(list ? '[' : '(');
      for (size_t i = 0; i < value.items().size(); ++i) {
        if (i > 0) out.add(", ");
        repr(value.items()[i], out);
      }
      if (!list && value.items().size() == 1) out.add(',');
      return out.add(list ? ']' : ')');
    }
    case K::kMap: {
      out.add('{');
      bool first = true;
      for (const auto& [key, member] : value.members()) {
        if (!std::exchange(first, false)) out.add(", ");
        quote(key, out);
        out.add(": ");
        repr(member, out);
      }
      return out.add('}');
    }
    default:
      return out.add(cat("<", type_name(value), ">"));
  }
}

std::string_view str(const Value& value, TextMade& scratch) {
  if (value.is(Value::Kind::kString)) return value.text();
  if (!value.is(Value::Kind::kUndefined)) repr(value, scratch);
  return scratch.view();
}

void to_json(const Value& value, const JsonStyle& style, TextMade& out) {
  JsonWriter(style, out).write(value, 0);
}

namespace {

size_t first_character(std::string_view text) {
  const Utf8Char c = utf8_first(text);
  return c.status == Utf8Status::kValid ? c.length : 1;
}

}  // namespace

size_t characters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_character(text));
  return count;
}

size_t bytes_of_characters(std::string_view text, size_t count) {
  std::string_view rest = text;
  for (; count > 0 && !rest.empty(); --count) rest.remove_prefix(first_character(rest));
  return text.size() - rest.size();
}

std::vector<size_t> starts_of_characters(std::string_view text) {
  std::vector<size_t> starts{0};
  starts.reserve(characters(text) + 1);
  while (starts.back() < text.size()) {
    starts.push_back(starts.back() + first_character(text.substr(starts.back())));
  }
  return starts;
}

bool begins_with_space(std::string_view text) {
  const Utf8Char c = utf8_first(text);
  return c.status == Utf8Status::kValid && is_space(c.code);
}

std::string_view strip(std::string_view text, std::string_view set, bool left, bool right) {
  const CodePoints these = code_points(set);
  const auto goes = [&](std::string_view one) {
    const Utf8Char c = utf8_first(one);
    if (c.status != Utf8Status::kValid) return false;
    return set.empty() ? is_space(c.code) : std::ranges::find(these, c.code) != these.end();
  };
  while (left && !text.empty() && goes(text)) text.remove_prefix(utf8_first(text).length);
  while (right && !text.empty()) {
    size_t length = 1;
    while (length < std::min<size_t>(4, text.size()) &&
           (text[text.size() - length] & 0xC0) == 0x80) {
      ++length;
    }
    const std::string_view last = text.substr(text.size() - length);
    if (utf8_first(last).length != length || !goes(last)) break;
    text.remove_suffix(length);
  }
  return text;
}

void upper(std::string_view text, TextMade& out) { by_characters(text, out, append_upper); }
void lower(std::string_view text, TextMade& out) { by_characters(text, out, append_lower); }

void capitalized(std::string_view text, TextMade& out) {
  const size_t first = bytes_of_characters(text, 1);
  upper(text.substr(0, first), out);
  lower(text.substr(first), out);
}

// Jinja's filter: a word begins behind white space and -({[<.
void title(std::string_view text, TextMade& out) {
  bool begins = true;
  by_characters(text, out, [&](char32_t code, CodePoints& made) {
    begins ? append_upper(code, made) : append_lower(code, made);
    begins =
        is_space(code) || std::u32string_view(U"-({[<").find(code) != std::u32string_view::npos;
  });
}

}  // namespace split::jinja
