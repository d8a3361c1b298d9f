// Values of a run, and what Python says of them.
#include <algorithm>
#include <charconv>
#include <cmath>

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

// The shortest digits that give the number back, laid out as Python lays them out.
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

std::vector<const Member*> members_of(const Value& map, bool sorted) {
  std::vector<const Member*> members;
  for (const Member& member : map.members()) members.push_back(&member);
  if (sorted) {
    std::ranges::stable_sort(members, [](auto* a, auto* b) { return a->first < b->first; });
  }
  return members;
}

void quote_json(std::string_view text, bool ascii, std::string& out) {
  const auto escape = [&](char32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
  };
  out += '"';
  for (const char32_t code : code_points(text)) {
    constexpr std::u32string_view kNamed = U"\"\\\n\r\t\b\f";
    if (const size_t which = kNamed.find(code); which != kNamed.npos) {
      out += '\\';
      out += "\"\\nrtbf"[which];
    } else if (code < 0x20) {
      escape(code);
    } else if (ascii && code > 0x7E && code <= 0x10FFFF) {
      if (code >= 0x10000) escape(0xD800 + ((code - 0x10000) >> 10));
      escape(code >= 0x10000 ? 0xDC00 + ((code - 0x10000) & 0x3FF) : code);
    } else {
      append_utf8(code, out);
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  std::string out;

  void write(const Value& value, int level) {
    using K = Value::Kind;
    if (value.is(K::kNone)) {
      out += "null";
    } else if (value.is(K::kBoolean)) {
      out += value.integer != 0 ? "true" : "false";
    } else if (value.is(K::kFloat) && !std::isfinite(value.number)) {
      out += std::isnan(value.number) ? "NaN" : value.number < 0 ? "-Infinity" : "Infinity";
    } else if (value.is_number()) {
      out += number_text(value);
    } else if (value.is(K::kString)) {
      quote_json(value.text(), style_.ascii, out);
    } else if (value.is_list()) {
      list('[', ']', value.items().size(), level,
           [&](size_t i) { write(value.items()[i], level + 1); });
    } else if (value.is(K::kMap)) {
      const std::vector<const Member*> members = members_of(value, style_.sorted);
      list('{', '}', members.size(), level, [&](size_t i) {
        quote_json(members[i]->first, style_.ascii, out);
        out += style_.behind_key;
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
      out += '\n';
      out.append(static_cast<size_t>(style_.indent) * static_cast<size_t>(at), ' ');
    };
    out += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += lines && style_.between == ", " ? "," : style_.between;
      line(level + 1);
      item(i);
      if (out.size() > JinjaLimits::kOutput) {
        throw Error(ErrorKind::kInput, cat("more than ", JinjaLimits::kOutput, " bytes of text"));
      }
    }
    line(level);
    out += close;
  }

  const JsonStyle& style_;
};

std::string cased(std::string_view text, bool upper) {
  CodePoints out;
  for (const char32_t code : code_points(text)) {
    upper ? append_upper(code, out) : append_lower(code, out);
  }
  return utf8_of(out);
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

bool equal(const Value& a, const Value& b) {
  using K = Value::Kind;
  if (a.is_number() && b.is_number()) {
    const bool whole = !a.is(K::kFloat) && !b.is(K::kFloat);
    return whole ? a.integer == b.integer : a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case K::kUndefined:
    case K::kNone:
      return true;
    case K::kString:
      return a.text() == b.text();
    case K::kList:
    case K::kTuple:
      return a.box == b.box || std::ranges::equal(a.items(), b.items(), equal);
    case K::kMap: {
      if (a.box == b.box) return true;
      if (a.members().size() != b.members().size()) return false;
      return std::ranges::equal(members_of(a, true), members_of(b, true), [](auto* x, auto* y) {
        return x->first == y->first && equal(x->second, y->second);
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

std::string repr(const Value& value) {
  using K = Value::Kind;
  switch (value.kind) {
    case K::kUndefined:
      return "Undefined";
    case K::kNone:
      return "None";
    case K::kBoolean:
      return value.integer != 0 ? "True" : "False";
    case K::kInteger:
    case K::kFloat:
      return number_text(value);
    case K::kString: {
      const std::string& text = value.text();
      const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
      std::string out(1, quote);
      for (const char c : text) {
        constexpr std::string_view kNamed = "\n\r\t\\";
        if (const size_t which = kNamed.find(c); which != kNamed.npos) {
          out += '\\';
          out += "nrt\\"[which];
        } else if (c == quote) {
          out += '\\';
          out += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += "\\x";
          out += kHex[c >> 4 & 15];
          out += kHex[c & 15];
        } else {
          out += c;
        }
      }
      return out + quote;
    }
    case K::kList:
    case K::kTuple: {
      const bool list = value.is(K::kList);
      std::string out = list ? "[" : "(";
      for (size_t i = 0; i < value.items().size(); ++i) {
        out += (i > 0 ? ", " : "") + repr(value.items()[i]);
        if (out.size() > JinjaLimits::kOutput) break;  // refused where it is used
      }
      if (!list && value.items().size() == 1) out += ",";
      return out + (list ? "]" : ")");
    }
    case K::kMap: {
      std::string out = "{";
      for (const auto& [key, member] : value.members()) {
        out += (out.size() > 1 ? ", " : "") + repr(string(key)) + ": " + repr(member);
        if (out.size() > JinjaLimits::kOutput) break;
      }
      return out + "}";
    }
    default:
      return cat("<", type_name(value), ">");
  }
}

std::string str(const Value& value) {
  if (value.is(Value::Kind::kString)) return value.text();
  return value.is(Value::Kind::kUndefined) ? std::string() : repr(value);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

std::vector<size_t> characters(std::string_view text) {
  std::vector<size_t> starts{0};
  while (starts.back() < text.size()) {
    const Utf8Char c = utf8_first(text.substr(starts.back()));
    starts.push_back(starts.back() + (c.status == Utf8Status::kValid ? c.length : 1));
  }
  return starts;
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

std::string upper(std::string_view text) { return cased(text, true); }
std::string lower(std::string_view text) { return cased(text, false); }

std::string capitalized(std::string_view text) {
  const std::vector<size_t> starts = characters(text);
  const size_t first = starts.size() > 1 ? starts[1] : 0;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

// As Jinja's filter: a word begins behind white space and -({[<.
std::string title(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char32_t code : code_points(text)) {
    CodePoints one;
    begins ? append_upper(code, one) : append_lower(code, one);
    out += utf8_of(one);
    begins =
        is_space(code) || std::u32string_view(U"-({[<").find(code) != std::u32string_view::npos;
  }
  return out;
}

}  // namespace split::jinja
