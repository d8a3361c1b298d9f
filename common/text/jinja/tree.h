// The tree that a template is read into, and the values of a run; for the interpreter and the
// parser alone.
#pragma once

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "text/jinja/jinja.h"
#include "text/jinja/meter.h"

namespace split::jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;

enum class Op : uint8_t {
  // Statements, with the contents of `kids` and `bodies`.
  kText,      // text
  kPrint,     // an expression
  kIf,        // conditions; a body each, and one more for else
  kFor,       // the iterable, a condition or null; names; body, else
  kSet,       // targets; a value
  kSetBlock,  // a target; body
  kMacro,     // text: its name; names: parameters; kids: defaults of the last ones; body
  kBreak,
  kContinue,
  kScope,  // a body alone
  // Expressions.
  kValue,  // value
  kName,   // text
  kList,
  kTuple,
  kMap,        // key, value, key, value ...
  kAttribute,  // attribute `text` of kids[0]
  kItem,       // kids[0][kids[1]]
  kSlice,      // kids[0][kids[1]:kids[2]:kids[3]], null where left out
  kCall,       // kids[0](kids[1..]); names: those of the last ones
  kFilter,     // kids[0] | text(kids[1..])
  kTest,       // kids[0] is text(kids[1..])
  kNot,
  kMinus,
  kPlus,
  kAnd,
  kOr,
  kCondition,  // kids[0] if kids[1] else kids[2] or null
  kCompare,    // kids[0] names[0] kids[1] names[1] kids[2] ...
  kBinary      // kids[0] text kids[1]
};

struct Box;
struct Value;
using Member = std::pair<std::string, Value>;

// Immutable, namespaces excepted.
struct Value {
  enum class Kind : uint8_t {
    kUndefined,  // box: its name
    kNone,
    kBoolean,
    kInteger,
    kFloat,
    kString,
    kList,
    kTuple,
    kMap,
    kNamespace,
    kMacro,
    kLoop,
    kFunction,  // box: its name
    kMethod     // box: its name, and its object
  };
  Kind kind;
  union {
    int64_t integer;  // the boolean too
    double number;
    const Node* macro;
    const struct Loop* loop;
  };
  std::shared_ptr<Box> box;

  explicit Value(Kind kind = Kind::kUndefined, int64_t integer = 0)
      : kind(kind), integer(integer) {}
  bool is(Kind wanted) const { return kind == wanted; }
  bool is_number() const { return is(Kind::kInteger) || is(Kind::kFloat) || is(Kind::kBoolean); }
  bool is_list() const { return is(Kind::kList) || is(Kind::kTuple); }
  double as_double() const { return is(Kind::kFloat) ? number : static_cast<double>(integer); }
  const std::string& text() const;
  const std::vector<Value>& items() const;
  const std::vector<Member>& members() const;

 private:
  const Box& contents() const;  // empty without a box
};

struct Box {
  std::string text;
  std::vector<Value> items;
  std::vector<Member> members;
  int depth = 1;           // nesting of its values
  Meter* meter = nullptr;  // pays for a run's values and contents
  size_t held = 0;

  Box() = default;
  ~Box() {
    if (meter != nullptr) meter->let_go(held);
  }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;
};
inline const std::string& Value::text() const { return contents().text; }
inline const std::vector<Value>& Value::items() const { return contents().items; }
inline const std::vector<Member>& Value::members() const { return contents().members; }

struct Node {
  Op op;
  int line = 0;
  int height = 1;
  std::string text;
  Value value;
  std::vector<NodePtr> kids;
  std::vector<std::string> names;
  std::vector<std::vector<NodePtr>> bodies;
};

// Throws the errors of JinjaTemplate.
std::vector<NodePtr> parse(std::string_view text);

using Names = std::initializer_list<std::string_view>;
template <typename List = Names>
bool is_any(std::string_view name, const List& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}
// Parses a number that is the whole text.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const char* const stop = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::is_integral_v<Number>) {
    read = std::from_chars(text.data(), stop, number);
  } else {
    read = parse_real(text.data(), stop, number);
  }
  const bool all = read.ec == std::errc() && read.ptr == stop;
  return all ? std::optional(number) : std::nullopt;
}

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

Value none();
Value boolean(bool value);
Value integer(int64_t value);
Value floating(double value);
Value boxed(Value::Kind kind, std::string text);
Value string(std::string text);
Value undefined(std::string name);

// Python's meaning. Bytes that are not UTF-8 are characters of their own.
bool truth(const Value& value);
bool equal(const Value& a, const Value& b, Meter& meter);
// str(): the text itself, else written to `scratch`.
std::string_view str(const Value& value, TextMade& scratch);
void repr(const Value& value, TextMade& out);
const char* type_name(const Value& value);

struct JsonStyle {
  int indent = -1;
  bool ascii = false, sorted = false;
  std::string between = ", ", behind_key = ": ";
};
void to_json(const Value& value, const JsonStyle& style, TextMade& out);

// The number of characters; bytes of the first `count`; and where each begins, with the end.
size_t characters(std::string_view text);
size_t bytes_of_characters(std::string_view text, size_t count);
std::vector<size_t> starts_of_characters(std::string_view text);
bool begins_with_space(std::string_view text);
std::string_view strip(std::string_view text, std::string_view set, bool left, bool right);
void upper(std::string_view text, TextMade& out);
void lower(std::string_view text, TextMade& out);
void capitalized(std::string_view text, TextMade& out);
void title(std::string_view text, TextMade& out);

}  // namespace split::jinja
