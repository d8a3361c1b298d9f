#include "text/jinja/jinja.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>

#include "text/jinja/tree.h"
#include "text/utf8.h"

namespace split {
namespace jinja {

// The state that `loop` tells of.
struct Loop {
  const std::vector<Value>* items;
  size_t at = 0;
  int depth = 1;
};

namespace {

using K = Value::Kind;
constexpr int kMostDepth = 400;   // of the tree while it runs, macros in macros included
constexpr int kMostNested = 100;  // values in values

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kInput, what); }

constexpr std::string_view kFilters[] = {
    "abs",     "capitalize", "count",  "d",          "default", "dictsort", "e",          "escape",
    "first",   "float",      "indent", "int",        "items",   "join",     "last",       "length",
    "list",    "lower",      "map",    "max",        "min",     "reject",   "rejectattr", "replace",
    "reverse", "safe",       "select", "selectattr", "sort",    "string",   "sum",        "title",
    "tojson",  "trim",       "unique", "upper"};
constexpr std::string_view kTests[] = {
    "==",       "boolean", "callable", "defined",   "divisibleby", "eq",      "equalto",  "even",
    "false",    "float",   "ge",       "gt",        "in",          "integer", "iterable", "le",
    "lower",    "lt",      "mapping",  "ne",        "none",        "number",  "odd",      "sameas",
    "sequence", "string",  "true",     "undefined", "upper"};

constexpr std::string_view kStringMethods[] = {
    "capitalize",   "count",   "endswith", "find",   "index",  "isdigit",
    "isnumeric",    "isspace", "join",     "lower",  "lstrip", "removeprefix",
    "removesuffix", "replace", "rsplit",   "rstrip", "split",  "splitlines",
    "startswith",   "strip",   "title",    "upper"};
// Python's others, which are not here.
constexpr std::string_view kOtherStringMethods[] = {
    "casefold",   "center",   "encode",    "expandtabs",   "format",  "format_map",  "isalnum",
    "isalpha",    "isascii",  "isdecimal", "isidentifier", "islower", "isprintable", "istitle",
    "isupper",    "ljust",    "maketrans", "partition",    "rfind",   "rindex",      "rjust",
    "rpartition", "swapcase", "translate", "zfill"};

struct Arguments {
  std::vector<Value> values;
  std::vector<Member> named;

  // The one at `at`, or with this name, or undefined.
  Value get(size_t at, std::string_view name) const {
    if (at < values.size()) return values[at];
    for (const auto& [key, value] : named) {
      if (key == name) return value;
    }
    return undefined(std::string(name));
  }
  bool has(size_t at, std::string_view name) const { return !get(at, name).is(K::kUndefined); }
};

// The characters of a string, or the values of a list.
class Sequence {
 public:
  explicit Sequence(const Value& value) : value_(value) {
    if (value.is(K::kString)) starts_ = characters(value.text());
  }
  static bool is(const Value& value) { return value.is_list() || value.is(K::kString); }

  size_t size() const { return value_.is_list() ? value_.items().size() : starts_.size() - 1; }
  std::string_view text(size_t at) const {
    return std::string_view(value_.text()).substr(starts_[at], starts_[at + 1] - starts_[at]);
  }
  Value at(size_t at) const {
    return value_.is_list() ? value_.items()[at] : string(std::string(text(at)));
  }

 private:
  const Value& value_;
  std::vector<size_t> starts_;
};

enum class Flow : uint8_t { kOn, kBreak, kContinue };

class Run {
 public:
  Run(const std::vector<NodePtr>& tree, const Json& names) : tree_(tree) {
    frames_.emplace_back();
    for (const char* name : {"raise_exception", "strftime_now", "range", "namespace", "dict"}) {
      frames_[0].emplace_back(name, boxed(K::kFunction, name));
    }
    for (const auto& [name, value] : names.members()) define(name, of_json(value));
  }

  std::string render() {
    outputs_.emplace_back();
    execute(tree_);
    return std::move(outputs_.back());
  }

 private:
  using Frame = std::vector<Member>;

  struct Deeper {
    explicit Deeper(int& depth, int most) : depth(depth) {
      if (depth >= most) refuse("the template nests too deeply");
      ++depth;
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  void spend(size_t steps) {
    steps_ += static_cast<int64_t>(std::min<size_t>(steps, 1 << 30));
    if (steps_ > JinjaLimits::kSteps) {
      refuse(cat("the template takes more than ", JinjaLimits::kSteps, " steps"));
    }
  }
  void spend_bytes(size_t bytes) {
    if (bytes > JinjaLimits::kOutput) {
      refuse(cat("the template makes more than ", JinjaLimits::kOutput, " bytes of text"));
    }
    spend(bytes / 64);
  }
  Value text_of(std::string text) {
    spend_bytes(text.size());
    return string(std::move(text));
  }

  // Values in a list, tuple or map, which then may not be what changes or ends.
  void put_into(Box& box, const Value& value) const {
    if (value.is(K::kNamespace) || value.is(K::kLoop)) {
      refuse(cat("a ", type_name(value), " in another value is not supported"));
    }
    const bool holds = value.is_list() || value.is(K::kMap) || value.is(K::kMethod);
    if (holds && value.box != nullptr) box.depth = std::max(box.depth, value.box->depth + 1);
    if (box.depth > kMostNested) refuse("values nest too deeply");
  }
  Value list_of(std::vector<Value> items, K kind = K::kList) {
    spend(items.size() / 16);
    Value list(kind);
    list.box = std::make_shared<Box>();
    for (const Value& item : items) put_into(*list.box, item);
    list.box->items = std::move(items);
    return list;
  }
  Value map_of(std::vector<Member> members) {
    spend(members.size() / 16);
    Value map(K::kMap);
    map.box = std::make_shared<Box>();
    for (const auto& member : members) put_into(*map.box, member.second);
    map.box->members = std::move(members);
    return map;
  }
  static void set_member(std::vector<Member>& members, std::string key, Value value) {
    for (auto& [name, old] : members) {
      if (name == key) return old = std::move(value), void();
    }
    members.emplace_back(std::move(key), std::move(value));
  }

  Value of_json(const Json& json) {
    if (json.is_null()) return none();
    if (json.is_boolean()) return boolean(json.get<bool>());
    if (json.is_number_integer()) {
      const bool large = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
      return large ? floating(json.get<double>()) : integer(json.get<int64_t>());
    }
    if (json.is_number()) return floating(json.get<double>());
    if (json.is_string()) return string(json.text());
    if (json.is_array()) {
      std::vector<Value> items;
      for (const Json& one : json) items.push_back(of_json(one));
      return list_of(std::move(items));
    }
    std::vector<Member> members;
    for (const auto& [name, value] : json.members()) members.emplace_back(name, of_json(value));
    return map_of(std::move(members));
  }

  // Names.
  void define(const std::string& name, Value value) {
    set_member(frames_.back(), name, std::move(value));
  }
  Value look_up(const std::string& name) {
    const auto in = [&](const Frame& frame) -> const Value* {
      spend(frame.size() / 16);
      for (const auto& [key, value] : frame) {
        if (key == name) return &value;
      }
      return nullptr;
    };
    for (size_t i = frames_.size(); i > floor_; --i) {
      if (const Value* found = in(frames_[i - 1])) return *found;
    }
    if (floor_ > 0) {
      if (const Value* found = in(frames_[0])) return *found;
    }
    return undefined(name);
  }

  static void expect_defined(const Value& value) {
    if (value.is(K::kUndefined)) refuse(cat(shown(value.text()), " is undefined"));
  }

  struct Scope {
    // From `floor` on all frames are seen; a macro's are its own alone.
    Scope(Run& run, size_t floor) : run(run), floor(std::exchange(run.floor_, floor)) {
      run.frames_.emplace_back();
    }
    explicit Scope(Run& run) : Scope(run, run.floor_) {}
    ~Scope() {
      run.frames_.pop_back();
      run.floor_ = floor;
    }
    Run& run;
    size_t floor;
  };

  // Statements.
  Flow execute(const std::vector<NodePtr>& body) {
    const Deeper deeper(depth_, kMostDepth);
    for (const NodePtr& node : body) {
      if (const Flow flow = statement(*node); flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  void print(std::string_view text) {
    std::string& out = outputs_.back();
    spend_bytes(text.size());
    if (out.size() + text.size() > JinjaLimits::kOutput) spend_bytes(out.size() + text.size());
    out += text;
  }

  Flow statement(const Node& node) {
    spend(1);
    switch (node.op) {
      case Op::kText:
        print(node.text);
        return Flow::kOn;
      case Op::kPrint: {
        const Value value = evaluate(*node.kids[0]);
        value.is(K::kString) ? print(value.text()) : print(str(value));
        return Flow::kOn;
      }
      case Op::kIf:
        for (size_t i = 0; i < node.bodies.size(); ++i) {
          if (i == node.kids.size() || truth(evaluate(*node.kids[i])))
            return execute(node.bodies[i]);
        }
        return Flow::kOn;
      case Op::kFor:
        return loop(node);
      case Op::kSet:
        set(node);
        return Flow::kOn;
      case Op::kSetBlock:
        assign(*node.kids[0], captured(node.bodies[0]));
        return Flow::kOn;
      case Op::kMacro: {
        Value macro(K::kMacro);
        macro.macro = &node;
        define(node.text, std::move(macro));
        return Flow::kOn;
      }
      case Op::kBreak:
        return Flow::kBreak;
      case Op::kContinue:
        return Flow::kContinue;
      default:
        return execute(node.bodies[0]);
    }
  }

  Value captured(const std::vector<NodePtr>& body) {
    outputs_.emplace_back();
    const Scope scope(*this);
    execute(body);
    Value text = string(std::move(outputs_.back()));
    outputs_.pop_back();
    return text;
  }

  void assign(const Node& target, Value value) {
    if (target.op == Op::kName) return define(target.text, std::move(value));
    const Value space = look_up(target.kids[0]->text);
    if (!space.is(K::kNamespace)) refuse("cannot assign attribute on non-namespace object");
    put_into(*space.box, value);
    set_member(space.box->members, target.text, std::move(value));
  }

  void set(const Node& node) {
    const size_t targets = node.kids.size() - 1;
    Value value = evaluate(*node.kids[targets]);
    if (targets == 1) return assign(*node.kids[0], std::move(value));
    const std::vector<Value> parts = unpacked(value, targets);
    for (size_t i = 0; i < targets; ++i) assign(*node.kids[i], parts[i]);
  }

  std::vector<Value> unpacked(const Value& value, size_t count) {
    std::vector<Value> parts = iterate(value);
    if (parts.size() != count) {
      refuse(cat("expected ", count, " values to unpack, got ", parts.size()));
    }
    return parts;
  }

  void unpack(const std::vector<std::string>& names, const Value& item) {
    if (names.size() == 1) return define(names[0], item);
    const std::vector<Value> parts = unpacked(item, names.size());
    for (size_t i = 0; i < names.size(); ++i) define(names[i], parts[i]);
  }

  Flow loop(const Node& node) {
    std::vector<Value> items = iterate(evaluate(*node.kids[0]));
    if (node.kids[1] != nullptr) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        spend(1);
        const Scope scope(*this);
        unpack(node.names, item);
        if (truth(evaluate(*node.kids[1]))) kept.push_back(item);
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      if (node.bodies.size() < 2) return Flow::kOn;
      const Scope scope(*this);
      return execute(node.bodies[1]);
    }
    const Deeper deeper(loops_, JinjaLimits::kNesting);
    Loop state{&items, 0, loops_};
    for (; state.at < items.size(); ++state.at) {
      spend(1);
      const Scope scope(*this);
      Value self(K::kLoop);
      self.loop = &state;
      define("loop", self);
      unpack(node.names, items[state.at]);
      if (execute(node.bodies[0]) == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  // The values that Python gives one after the other.
  std::vector<Value> iterate(const Value& value) {
    if (value.is(K::kUndefined)) return {};
    if (value.is_list()) {
      spend(value.items().size() / 16);
      return value.items();
    }
    std::vector<Value> items;
    if (value.is(K::kMap)) {
      for (const auto& member : value.members()) items.push_back(text_of(member.first));
    } else if (value.is(K::kString)) {
      const Sequence all(value);
      spend(all.size());
      for (size_t i = 0; i < all.size(); ++i) items.push_back(all.at(i));
    } else {
      refuse(cat("'", type_name(value), "' object is not iterable"));
    }
    spend(items.size());
    return items;
  }

  // Expressions.
  Value evaluate(const Node& node) {
    const Deeper deeper(depth_, kMostDepth);
    spend(1);
    switch (node.op) {
      case Op::kValue:
        return node.value;
      case Op::kName:
        return look_up(node.text);
      case Op::kList:
      case Op::kTuple: {
        std::vector<Value> items;
        for (const NodePtr& kid : node.kids) items.push_back(evaluate(*kid));
        return list_of(std::move(items), node.op == Op::kList ? K::kList : K::kTuple);
      }
      case Op::kMap: {
        std::vector<Member> members;
        for (size_t i = 0; i < node.kids.size(); i += 2) {
          const Value key = evaluate(*node.kids[i]);
          if (!key.is(K::kString)) throw JinjaUnsupported(node.line, "a key that is no string");
          spend(members.size() / 16);
          set_member(members, key.text(), evaluate(*node.kids[i + 1]));
        }
        return map_of(std::move(members));
      }
      case Op::kAttribute:
        return attribute(evaluate(*node.kids[0]), node);
      case Op::kItem:
        return item(evaluate(*node.kids[0]), evaluate(*node.kids[1]));
      case Op::kSlice:
        return slice(node);
      case Op::kCall:
        return call(node);
      case Op::kFilter:
        return filter(node.text, evaluate(*node.kids[0]), arguments(node, 1), node.line);
      case Op::kTest:
        return boolean(test(node.text, evaluate(*node.kids[0]), arguments(node, 1).values));
      case Op::kNot:
        return boolean(!truth(evaluate(*node.kids[0])));
      case Op::kMinus:
      case Op::kPlus:
        return signed_number(evaluate(*node.kids[0]), node.op == Op::kMinus);
      case Op::kAnd:
      case Op::kOr: {
        Value left = evaluate(*node.kids[0]);
        return truth(left) == (node.op == Op::kAnd) ? evaluate(*node.kids[1]) : left;
      }
      case Op::kCondition:
        if (truth(evaluate(*node.kids[1]))) return evaluate(*node.kids[0]);
        return node.kids[2] == nullptr ? undefined("") : evaluate(*node.kids[2]);
      case Op::kCompare:
        return boolean(compare(node));
      default:
        return binary(node.text, evaluate(*node.kids[0]), evaluate(*node.kids[1]));
    }
  }

  static Value signed_number(const Value& value, bool minus) {
    if (!value.is_number()) {
      refuse(cat("bad operand type for unary ", minus ? "-" : "+", ": '", type_name(value), "'"));
    }
    if (value.is(K::kFloat)) return floating(minus ? -value.number : value.number);
    if (minus && value.integer == INT64_MIN) refuse("a number too large");
    return integer(minus ? -value.integer : value.integer);
  }

  bool compare(const Node& node) {
    Value left = evaluate(*node.kids[0]);
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value right = evaluate(*node.kids[i + 1]);
      if (!holds(left, node.names[i], right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool holds(const Value& left, std::string_view sign, const Value& right) {
    if (sign == "==" || sign == "!=") {
      spend_compared(left);
      return equal(left, right) == (sign == "==");
    }
    if (sign == "in" || sign == "not in") return contains(right, left) == (sign == "in");
    return ordered(left, right, sign);
  }

  void spend_compared(const Value& value) {
    spend(value.is(K::kString) ? value.text().size() / 64 : 0);
    for (const Value& one : value.items()) spend_compared(one), spend(1);
    for (const auto& one : value.members()) spend_compared(one.second), spend(1);
  }

  bool contains(const Value& whole, const Value& part) {
    if (whole.is(K::kString)) {
      if (!part.is(K::kString)) {
        refuse(cat("'in <string>' requires string as left operand, not ", type_name(part)));
      }
      spend(whole.text().size() / 64);
      return whole.text().find(part.text()) != std::string::npos;
    }
    if (whole.is(K::kMap)) {
      spend(whole.members().size() / 16);
      return part.is(K::kString) && std::ranges::any_of(whole.members(), [&](const auto& member) {
               return member.first == part.text();
             });
    }
    if (whole.is(K::kUndefined)) return false;
    if (!whole.is_list()) refuse(cat("argument of type '", type_name(whole), "' is not iterable"));
    return std::ranges::any_of(whole.items(), [&](const Value& one) {
      spend_compared(one);
      return equal(one, part);
    });
  }

  static bool ordered(const Value& a, const Value& b, std::string_view sign) {
    int order;
    if (a.is_number() && b.is_number()) {
      const double x = a.as_double(), y = b.as_double();
      if (std::isnan(x) || std::isnan(y)) return false;
      const bool whole = !a.is(K::kFloat) && !b.is(K::kFloat);
      const bool less = whole ? a.integer < b.integer : x < y;
      const bool more = whole ? a.integer > b.integer : x > y;
      order = less ? -1 : more ? 1 : 0;
    } else if (a.is(K::kString) && b.is(K::kString)) {
      order = a.text().compare(b.text());
    } else {
      refuse(cat("'", sign, "' not supported between instances of '", type_name(a), "' and '",
                 type_name(b), "'"));
    }
    return sign == "<"    ? order < 0
           : sign == "<=" ? order <= 0
           : sign == ">"  ? order > 0
                          : order >= 0;
  }

  Value binary(std::string_view sign, const Value& a, const Value& b) {
    if (sign == "~") return text_of(str(a) + str(b));
    if (sign == "+" && a.is(K::kString) && b.is(K::kString)) {
      spend_bytes(a.text().size() + b.text().size());
      return string(a.text() + b.text());
    }
    if (sign == "+" && a.is_list() && a.kind == b.kind) {
      std::vector<Value> items = iterate(a);
      for (const Value& one : iterate(b)) items.push_back(one);
      return list_of(std::move(items), a.kind);
    }
    if (sign == "*" && a.is(K::kString) && b.is(K::kInteger)) {
      const auto times = static_cast<size_t>(std::clamp<int64_t>(b.integer, 0, 1 << 24));
      spend_bytes(a.text().size() * times);
      std::string out;
      for (size_t i = 0; i < times; ++i) out += a.text();
      return string(std::move(out));
    }
    if (!a.is_number() || !b.is_number()) {
      expect_defined(a);
      expect_defined(b);
      refuse(cat("unsupported operand type(s) for ", sign, ": '", type_name(a), "' and '",
                 type_name(b), "'"));
    }
    return arithmetic(sign, a, b);
  }

  static Value arithmetic(std::string_view sign, const Value& a, const Value& b) {
    const bool divides = sign == "/" || sign == "//" || sign == "%";
    if (divides && b.as_double() == 0) refuse("division by zero");
    if (sign == "/" || a.is(K::kFloat) || b.is(K::kFloat)) {
      const double x = a.as_double(), y = b.as_double();
      return floating(sign == "+"    ? x + y
                      : sign == "-"  ? x - y
                      : sign == "*"  ? x * y
                      : sign == "/"  ? x / y
                      : sign == "//" ? std::floor(x / y)
                                     : x - y * std::floor(x / y));
    }
    __extension__ using Wide = __int128;  // which holds every result
    const Wide x = a.integer, y = b.integer;
    const bool down = divides && x % y != 0 && (x < 0) != (y < 0);
    const Wide out = sign == "+"    ? x + y
                     : sign == "-"  ? x - y
                     : sign == "*"  ? x * y
                     : sign == "//" ? x / y - (down ? 1 : 0)
                                    : x % y + (down ? y : 0);
    if (out < INT64_MIN || out > INT64_MAX) refuse("a number too large");
    return integer(static_cast<int64_t>(out));
  }

  Value member(const Value& map, std::string_view key) {
    spend(map.members().size() / 16);
    for (const auto& [name, value] : map.members()) {
      if (name == key) return value;
    }
    return undefined(std::string(key));
  }

  Value method(const Value& self, const std::string& name) {
    Value made = boxed(K::kMethod, name);
    made.box->depth = self.box == nullptr ? 1 : self.box->depth + 1;
    made.box->items.push_back(self);
    return made;
  }

  Value attribute(const Value& value, const Node& node) {
    const std::string& name = node.text;
    expect_defined(value);
    const auto refuse_method = [&](bool known, const char* whose = "") {
      if (known) throw JinjaUnsupported(node.line, cat("the method ", shown(name), whose));
    };
    switch (value.kind) {
      case K::kMap:
        if (is_any(name, {"items", "keys", "values", "get"})) return method(value, name);
        refuse_method(is_any(name, {"copy", "pop", "update", "setdefault", "clear"}));
        return member(value, name);
      case K::kNamespace:
        return member(value, name);
      case K::kString:
        if (is_any(name, kStringMethods)) return method(value, name);
        refuse_method(is_any(name, kOtherStringMethods), " of a string");
        break;
      case K::kLoop:
        return loop_value(value, name);
      case K::kList:
        refuse_method(is_any(name, {"append", "extend", "insert", "index", "count", "pop"}));
        break;
      default:
        break;
    }
    return undefined(name);
  }

  Value loop_value(const Value& self, const std::string& name) {
    const Loop& loop = *self.loop;
    const auto count = [](size_t n) { return integer(static_cast<int64_t>(n)); };
    const size_t size = loop.items->size();
    if (name == "index") return count(loop.at + 1);
    if (name == "index0") return count(loop.at);
    if (name == "first") return boolean(loop.at == 0);
    if (name == "last") return boolean(loop.at + 1 == size);
    if (name == "length") return count(size);
    if (name == "revindex") return count(size - loop.at);
    if (name == "revindex0") return count(size - loop.at - 1);
    if (name == "depth") return integer(loop.depth);
    if (name == "depth0") return integer(loop.depth - 1);
    if (name == "previtem") return loop.at > 0 ? (*loop.items)[loop.at - 1] : undefined(name);
    if (name == "nextitem")
      return loop.at + 1 < size ? (*loop.items)[loop.at + 1] : undefined(name);
    if (name == "cycle") return method(self, name);
    return undefined(name);
  }

  Value item(const Value& value, const Value& key) {
    expect_defined(value);
    if ((value.is(K::kMap) || value.is(K::kNamespace)) && key.is(K::kString)) {
      return member(value, key.text());
    }
    if (key.is(K::kInteger) && Sequence::is(value)) {
      const Sequence all(value);
      const auto size = static_cast<int64_t>(all.size());
      if (value.is(K::kString)) spend(all.size() / 16);
      const int64_t at = key.integer < 0 ? key.integer + size : key.integer;
      return at < 0 || at >= size ? undefined(cat(key.integer)) : all.at(static_cast<size_t>(at));
    }
    return undefined(str(key).substr(0, 64));
  }

  Value slice(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    std::optional<int64_t> part[3];
    for (size_t i = 0; i < 3; ++i) {
      if (node.kids[i + 1] == nullptr) continue;
      const Value one = evaluate(*node.kids[i + 1]);
      if (one.is(K::kInteger))
        part[i] = one.integer;
      else if (!one.is(K::kNone))
        refuse("slice indices must be integers or None");
    }
    if (!Sequence::is(value)) {
      expect_defined(value);
      refuse(cat("'", type_name(value), "' object is not subscriptable"));
    }
    const Sequence all(value);
    const auto size = static_cast<int64_t>(all.size());
    spend(all.size() / 16);
    const int64_t step = part[2].value_or(1);
    if (step == 0) refuse("slice step cannot be zero");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto bound = [&](std::optional<int64_t> at, int64_t otherwise) {
      if (!at) return otherwise;
      return std::clamp(*at < 0 && *at >= -size ? *at + size : *at < 0 ? low : *at, low, high);
    };
    const int64_t begin = bound(part[0], step > 0 ? low : high);
    const int64_t end = bound(part[1], step > 0 ? high : low);
    std::string text;
    std::vector<Value> items;
    const int64_t stride = std::clamp<int64_t>(step, -size - 1, size + 1);
    for (int64_t at = begin; stride > 0 ? at < end : at > end; at += stride) {
      const auto index = static_cast<size_t>(at);
      value.is_list() ? items.push_back(all.at(index)) : void(text += all.text(index));
    }
    return value.is_list() ? list_of(std::move(items), value.kind) : text_of(std::move(text));
  }

  Arguments arguments(const Node& node, size_t from) {
    Arguments all;
    const size_t named = node.kids.size() - (node.op == Op::kTest ? 0 : node.names.size());
    for (size_t i = from; i < node.kids.size(); ++i) {
      Value value = evaluate(*node.kids[i]);
      if (i < named)
        all.values.push_back(std::move(value));
      else
        all.named.emplace_back(node.names[i - named], std::move(value));
    }
    return all;
  }

  Value call(const Node& node) {
    const Value callee = evaluate(*node.kids[0]);
    const Arguments all = arguments(node, 1);
    if (callee.is(K::kMacro)) return macro(*callee.macro, all);
    if (callee.is(K::kFunction)) return function(callee.text(), all);
    if (callee.is(K::kMethod)) {
      const Value& self = callee.items()[0];
      if (self.is(K::kLoop)) {
        if (all.values.empty()) refuse("no items for cycling given");
        return all.values[self.loop->at % all.values.size()];
      }
      return self.is(K::kMap) ? map_method(self, callee.text(), all)
                              : string_method(self, callee.text(), all, node.line);
    }
    expect_defined(callee);
    refuse(cat("'", type_name(callee), "' object is not callable"));
  }

  Value macro(const Node& node, const Arguments& all) {
    const Deeper deeper(calls_, JinjaLimits::kNesting);
    if (all.values.size() > node.names.size()) {
      refuse(cat("macro ", shown(node.text), " takes not more than ", node.names.size(),
                 " argument(s)"));
    }
    const Scope scope(*this, frames_.size());
    const size_t first_default = node.names.size() - node.kids.size();
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value value = all.get(i, node.names[i]);
      if (value.is(K::kUndefined) && i >= first_default) {
        value = evaluate(*node.kids[i - first_default]);
      }
      define(node.names[i], std::move(value));
    }
    return captured(node.bodies[0]);
  }

  Value function(const std::string& name, const Arguments& all) {
    if (name == "raise_exception") refuse(str(all.get(0, "message")));
    if (name == "strftime_now") return text_of(now(str(all.get(0, "format"))));
    if (name == "range") return range(all.values);
    if (name == "dict") return map_of(all.named);
    Value space = map_of(all.named);  // namespace
    if (!all.values.empty()) {
      if (!all.values[0].is(K::kMap)) refuse("namespace expected a mapping");
      for (const auto& [key, value] : all.values[0].members())
        set_member(space.box->members, key, value);
    }
    space.kind = K::kNamespace;
    return space;
  }

  static std::string now(const std::string& format) {
    if (format.size() > 256) refuse("strftime_now: expected a short format");
    const std::time_t seconds = std::time(nullptr);
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    char text[4096];
    return {text, std::strftime(text, sizeof text, format.c_str(), &parts)};
  }

  Value range(const std::vector<Value>& values) {
    int64_t begin = 0, end = 0, step = 1;
    for (const Value& value : values) {
      if (!value.is(K::kInteger)) refuse("range expected integers");
    }
    if (values.empty() || values.size() > 3) refuse("range expected 1 to 3 arguments");
    values.size() == 1 ? end = values[0].integer
                       : (begin = values[0].integer, end = values[1].integer);
    if (values.size() == 3) step = values[2].integer;
    if (step == 0) refuse("range() arg 3 must not be zero");
    std::vector<Value> items;
    for (int64_t at = begin; step > 0 ? at < end : at > end;) {
      spend(1);
      items.push_back(integer(at));
      if (__builtin_add_overflow(at, step, &at)) break;
    }
    return list_of(std::move(items));
  }

  Value map_method(const Value& map, const std::string& name, const Arguments& all) {
    if (name == "get") {
      const Value key = all.get(0, "key");
      Value found = key.is(K::kString) ? member(map, key.text()) : undefined("");
      if (!found.is(K::kUndefined)) return found;
      return all.has(1, "default") ? all.get(1, "default") : none();
    }
    std::vector<Value> items;
    for (const auto& [key, value] : map.members()) {
      spend(1);
      items.push_back(name == "keys"     ? string(key)
                      : name == "values" ? value
                                         : list_of({string(key), value}, K::kTuple));
    }
    return list_of(std::move(items));
  }

  static const std::string& need_text(const Value& value, std::string_view what) {
    if (!value.is(K::kString)) refuse(cat(what, " expected a string, got ", type_name(value)));
    return value.text();
  }

  Value string_method(const Value& self, const std::string& name, const Arguments& all, int line) {
    const std::string& text = self.text();
    spend(text.size() / 64);
    const auto argument = [&](size_t at) -> std::string {
      return need_text(all.get(at, ""), cat(name, "()"));
    };
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      const bool given = !all.values.empty() && !all.values[0].is(K::kNone);
      const std::string set = given ? argument(0) : std::string();
      if (given && set.empty()) return self;
      spend(text.size() * set.size() / 64);
      return text_of(std::string(strip(text, set, name != "rstrip", name != "lstrip")));
    }
    if (name == "startswith" || name == "endswith") {
      const Value what = all.get(0, "");
      const auto holds = [&](const Value& part) {
        const std::string& one = need_text(part, name);
        return name == "startswith" ? text.starts_with(one) : text.ends_with(one);
      };
      if (what.is(K::kTuple)) return boolean(std::ranges::any_of(what.items(), holds));
      return boolean(holds(what));
    }
    if (name == "split" || name == "rsplit") return split(text, all, name == "rsplit");
    if (name == "splitlines") {
      std::vector<Value> lines;
      for (std::string_view rest = text; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view one = rest.substr(0, end);
        if (end < rest.size() && one.ends_with('\r')) one.remove_suffix(1);
        lines.push_back(text_of(std::string(one)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      spend(lines.size());
      return list_of(std::move(lines));
    }
    if (name == "replace") {
      return replace(text, argument(0), argument(1), all.get(2, "count"));
    }
    if (name == "removeprefix" || name == "removesuffix") {
      const std::string part = argument(0);
      const bool front = name == "removeprefix";
      if (!(front ? text.starts_with(part) : text.ends_with(part))) return self;
      return text_of(front ? text.substr(part.size()) : text.substr(0, text.size() - part.size()));
    }
    if (name == "join") return join(all.get(0, ""), text, {});
    if (name == "find" || name == "index") {
      const size_t at = text.find(argument(0));
      if (at == text.npos && name == "index") refuse("substring not found");
      if (at == text.npos) return integer(-1);
      return integer(static_cast<int64_t>(characters(text.substr(0, at)).size()) - 1);
    }
    if (name == "count") {
      const std::string part = argument(0);
      if (part.empty()) throw JinjaUnsupported(line, "count() of nothing");
      int64_t count = 0;
      for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
      return integer(count);
    }
    if (is_any(name, {"upper", "lower", "capitalize", "title"})) {
      return filter(name, self, {}, line);
    }
    if (name == "isdigit" || name == "isnumeric") {
      return boolean(!text.empty() &&
                     std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }));
    }
    if (name == "isspace") return boolean(!text.empty() && strip(text, {}, true, true).empty());
    throw JinjaUnsupported(line, cat("the method ", shown(name), " of a string"));
  }

  Value split(const std::string& text, const Arguments& all, bool from_right) {
    const Value separator = all.get(0, "sep"), most = all.get(1, "maxsplit");
    int64_t left = most.is(K::kInteger) && most.integer >= 0 ? most.integer : INT64_MAX;
    std::vector<Value> parts;
    const auto add = [&](std::string_view part) {
      spend(1);
      parts.push_back(text_of(std::string(part)));
    };
    std::string_view rest = text;
    if (!separator.is(K::kString)) {
      if (from_right && left != INT64_MAX) refuse("rsplit() expected a separator");
      for (rest = strip(rest, {}, true, false); !rest.empty();
           rest = strip(rest, {}, true, false)) {
        size_t end = 0;
        while (end < rest.size() && strip(rest.substr(end, 4), {}, true, false).size() ==
                                        std::min<size_t>(4, rest.size() - end)) {
          ++end;
        }
        if (left-- == 0) {
          add(strip(rest, {}, false, true));
          break;
        }
        add(rest.substr(0, end));
        rest.remove_prefix(end);
      }
      return list_of(std::move(parts));
    }
    const std::string& by = separator.text();
    if (by.empty()) refuse("empty separator");
    for (; left > 0; --left) {
      const size_t at = from_right ? rest.rfind(by) : rest.find(by);
      if (at == rest.npos) break;
      add(from_right ? rest.substr(at + by.size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + by.size());
    }
    add(rest);
    if (from_right) std::ranges::reverse(parts);
    return list_of(std::move(parts));
  }

  Value replace(const std::string& text, const std::string& from, const std::string& to,
                const Value& count) {
    int64_t left = count.is(K::kInteger) && count.integer >= 0 ? count.integer : INT64_MAX;
    if (from.empty()) refuse("replace() expected something to replace");
    std::string out;
    size_t begin = 0;
    for (size_t at = 0; left > 0 && (at = text.find(from, begin)) != text.npos; --left) {
      out.append(text, begin, at - begin);
      out += to;
      begin = at + from.size();
      if (out.size() > JinjaLimits::kOutput) spend_bytes(out.size());
    }
    out.append(text, begin);
    return text_of(std::move(out));
  }

  // The value of an attribute that a filter names: "a.b" goes in.
  Value attribute_of(const Value& value, const std::string& name) {
    Value found = value;
    for (std::string_view rest = name; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      const bool number = std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
      int64_t index = 0;
      if (number) std::from_chars(part.data(), part.data() + part.size(), index);
      if (found.is(K::kUndefined)) return found;
      found = item(found, number ? integer(index) : string(std::string(part)));
    }
    return found;
  }

  Value join(const Value& value, const std::string& between, const std::string& attribute_name) {
    std::string out;
    bool first = true;
    for (const Value& one : iterate(value)) {
      if (!std::exchange(first, false)) out += between;
      out += str(attribute_name.empty() ? one : attribute_of(one, attribute_name));
      if (out.size() > JinjaLimits::kOutput) spend_bytes(out.size());
    }
    return text_of(std::move(out));
  }

  // select, reject, selectattr and rejectattr.
  Value selected(const Value& value, const Arguments& all, bool by_attribute, bool wanted) {
    std::vector<Value> kept;
    const size_t from = by_attribute ? 1 : 0;
    const std::string attribute_name =
        by_attribute ? need_text(all.get(0, "attribute"), "selectattr") : std::string();
    std::string test_name;
    if (all.values.size() > from) test_name = need_text(all.values[from], "select");
    if (!test_name.empty() && !is_test(test_name)) refuse(cat("no test ", shown(test_name)));
    const std::vector<Value> rest(
        all.values.begin() + static_cast<ptrdiff_t>(std::min(all.values.size(), from + 1)),
        all.values.end());
    for (const Value& one : iterate(value)) {
      spend(1);
      const Value tested = by_attribute ? attribute_of(one, attribute_name) : one;
      const bool holds = test_name.empty() ? truth(tested) : test(test_name, tested, rest);
      if (holds == wanted) kept.push_back(one);
    }
    return list_of(std::move(kept));
  }

  Value mapped(const Value& value, const Arguments& all, int line) {
    std::vector<Value> items;
    const bool by_attribute = all.values.empty();
    const std::string name =
        need_text(by_attribute ? all.get(0, "attribute") : all.values[0], "map");
    if (!by_attribute && !is_filter(name))
      throw JinjaUnsupported(line, cat("the filter ", shown(name)));
    Arguments rest = all;
    if (!by_attribute) rest.values.erase(rest.values.begin());
    for (const Value& one : iterate(value)) {
      spend(1);
      if (!by_attribute) {
        items.push_back(filter(name, one, rest, line));
        continue;
      }
      Value found = attribute_of(one, name);
      if (found.is(K::kUndefined) && all.has(1, "default")) found = all.get(1, "default");
      items.push_back(std::move(found));
    }
    return list_of(std::move(items));
  }

  Value json(const Value& value, const Arguments& all) {
    JsonStyle style;
    if (const Value ascii = all.get(SIZE_MAX, "ensure_ascii"); truth(ascii)) style.ascii = true;
    if (const Value sorted = all.get(SIZE_MAX, "sort_keys"); truth(sorted)) style.sorted = true;
    // transformers' is tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
    if (all.values.size() > 1) refuse("tojson expected its settings by name");
    const Value indent = all.get(0, "indent");
    if (indent.is(K::kInteger))
      style.indent = static_cast<int>(std::clamp<int64_t>(indent.integer, 0, 64));
    if (const Value pair = all.get(SIZE_MAX, "separators");
        pair.is_list() && pair.items().size() == 2) {
      style.between = need_text(pair.items()[0], "separators");
      style.behind_key = need_text(pair.items()[1], "separators");
    }
    return text_of(to_json(value, style));
  }

  static int64_t whole(const Value& value, int64_t otherwise) {
    if (value.is(K::kFloat)) {
      return std::abs(value.number) < 9e18 ? static_cast<int64_t>(value.number) : otherwise;
    }
    if (value.is_number()) return value.integer;
    if (!value.is(K::kString)) return otherwise;
    const std::string_view text = strip(value.text(), {}, true, true);
    if (const auto number = number_in<int64_t>(text)) return *number;
    const auto fraction = number_in<double>(text);
    return fraction && std::abs(*fraction) < 9e18 ? static_cast<int64_t>(*fraction) : otherwise;
  }

  Value length_of(const Value& value) {
    size_t size = 0;
    if (Sequence::is(value)) {
      spend(value.text().size() / 64);
      size = Sequence(value).size();
    } else if (value.is(K::kMap)) {
      size = value.members().size();
    } else if (!value.is(K::kUndefined)) {
      refuse(cat("object of type '", type_name(value), "' has no len()"));
    }
    return integer(static_cast<int64_t>(size));
  }

  Value sorted(const Value& value, const Arguments& all, bool map) {
    std::vector<Value> items;
    if (map) {
      for (const auto& [key, one] : value.members())
        items.push_back(list_of({string(key), one}, K::kTuple));
    } else {
      items = iterate(value);
    }
    const Value by = all.get(SIZE_MAX, "attribute");
    const bool cased = truth(all.get(SIZE_MAX, "case_sensitive"));
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& one : items) {
      Value key = map ? one.items()[0] : by.is(K::kString) ? attribute_of(one, by.text()) : one;
      if (!cased && key.is(K::kString)) key = text_of(lower(key.text()));
      keyed.emplace_back(std::move(key), one);
    }
    spend(keyed.size() * 16);
    std::ranges::stable_sort(
        keyed, [](const auto& a, const auto& b) { return ordered(a.first, b.first, "<"); });
    if (truth(all.get(SIZE_MAX, "reverse"))) std::ranges::reverse(keyed);
    for (size_t i = 0; i < keyed.size(); ++i) items[i] = keyed[i].second;
    return list_of(std::move(items));
  }

  Value indented(const std::string& text, const Arguments& all) {
    const Value width = all.get(0, "width");
    const std::string pad =
        width.is(K::kString)
            ? width.text()
            : std::string(static_cast<size_t>(std::clamp<int64_t>(whole(width, 4), 0, 1024)), ' ');
    const bool first = truth(all.get(1, "first")), blank = truth(all.get(2, "blank"));
    std::string out;
    std::string_view rest = text;
    for (bool begins = true;; begins = false) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      if (begins ? first : blank || !line.empty()) out += pad;
      out += line;
      if (out.size() > JinjaLimits::kOutput) spend_bytes(out.size());
      if (end == rest.npos) return text_of(std::move(out));
      out += '\n';
      rest.remove_prefix(end + 1);
    }
  }

  Value filter(std::string_view name, const Value& value, const Arguments& all, int line) {
    spend(1);
    const auto text = [&] { return str(value); };
    if (name == "trim") {
      const Value set = all.get(0, "chars");
      return text_of(std::string(strip(text(), set.is(K::kString) ? set.text() : "", true, true)));
    }
    if (name == "tojson") return json(value, all);
    if (name == "length" || name == "count") return length_of(value);
    if (name == "string" || name == "safe") return text_of(text());
    if (name == "default" || name == "d") {
      const bool replaced =
          value.is(K::kUndefined) || (truth(all.get(1, "boolean")) && !truth(value));
      if (!replaced) return value;
      return all.has(0, "default_value") ? all.get(0, "default_value") : string("");
    }
    if (name == "upper") return text_of(upper(text()));
    if (name == "lower") return text_of(lower(text()));
    if (name == "capitalize") return text_of(capitalized(text()));
    if (name == "title") return text_of(title(text()));
    if (name == "join") {
      const Value by = all.get(1, "attribute"), between = all.get(0, "d");
      return join(value, between.is(K::kUndefined) ? "" : str(between),
                  by.is(K::kString) ? by.text() : "");
    }
    if (name == "list") return list_of(iterate(value));
    if (name == "first" || name == "last") {
      const std::vector<Value> items = iterate(value);
      if (items.empty()) return undefined(cat("no ", name, " item"));
      return name == "first" ? items.front() : items.back();
    }
    if (name == "replace") {
      return replace(text(), str(all.get(0, "old")), str(all.get(1, "new")), all.get(2, "count"));
    }
    if (name == "items") {
      if (value.is(K::kUndefined)) return list_of({});
      if (!value.is(K::kMap)) refuse("Can only get item pairs from a mapping.");
      return map_method(value, "items", {});
    }
    if (name == "dictsort") {
      if (!value.is(K::kMap)) refuse("dictsort expected a mapping");
      return sorted(value, all, true);
    }
    if (name == "sort") return sorted(value, all, false);
    if (name == "int") return integer(whole(value, whole(all.get(0, "default"), 0)));
    if (name == "float") {
      double number = value.is_number() ? value.as_double() : 0;
      const std::string digits =
          value.is(K::kString) ? std::string(strip(value.text(), {}, true, true)) : "";
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
      return floating(number);
    }
    if (name == "abs") {
      if (!value.is_number()) refuse("abs expected a number");
      return value.as_double() < 0 ? signed_number(value, true) : value;
    }
    if (name == "unique") {
      std::vector<Value> kept;
      for (const Value& one : iterate(value)) {
        spend(kept.size() / 16 + 1);
        const auto same = [&](const Value& other) {
          const bool texts = one.is(K::kString) && other.is(K::kString);
          return texts ? lower(one.text()) == lower(other.text()) : equal(one, other);
        };
        if (std::ranges::none_of(kept, same)) kept.push_back(one);
      }
      return list_of(std::move(kept));
    }
    if (is_any(name, {"select", "reject", "selectattr", "rejectattr"})) {
      return selected(value, all, name.ends_with("attr"), name.starts_with("select"));
    }
    if (name == "map") return mapped(value, all, line);
    if (name == "indent") return indented(text(), all);
    if (name == "reverse") {
      if (value.is(K::kString)) throw JinjaUnsupported(line, "the filter 'reverse' of a string");
      std::vector<Value> items = iterate(value);
      std::ranges::reverse(items);
      return list_of(std::move(items));
    }
    if (name == "sum") {
      Value total = integer(0);
      for (const Value& one : iterate(value)) total = binary("+", total, one);
      return total;
    }
    if (name == "min" || name == "max") {
      const std::vector<Value> items = iterate(value);
      if (items.empty()) return undefined(std::string(name));
      const Value* best = &items[0];
      for (const Value& one : items) {
        if (ordered(one, *best, name == "min" ? "<" : ">")) best = &one;
      }
      return *best;
    }
    // e, escape
    std::string out;
    for (const char c : text()) {
      constexpr std::string_view kMarks = "&<>\"'";
      constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
      const size_t which = kMarks.find(c);
      which == kMarks.npos ? out += c : out += kNames[which];
    }
    return text_of(std::move(out));
  }

  bool test(std::string_view name, const Value& value, const std::vector<Value>& all) {
    spend(1);
    const auto other = [&]() -> const Value& {
      if (all.empty()) refuse(cat("the test ", shown(name), " expected a value"));
      return all[0];
    };
    if (name == "defined") return !value.is(K::kUndefined);
    if (name == "undefined") return value.is(K::kUndefined);
    if (name == "none") return value.is(K::kNone);
    if (name == "string") return value.is(K::kString);
    if (name == "mapping") return value.is(K::kMap);
    if (name == "boolean") return value.is(K::kBoolean);
    if (name == "integer") return value.is(K::kInteger);
    if (name == "float") return value.is(K::kFloat);
    if (name == "number") return value.is_number();
    if (name == "true") return value.is(K::kBoolean) && value.integer != 0;
    if (name == "false") return value.is(K::kBoolean) && value.integer == 0;
    if (name == "callable")
      return value.is(K::kMacro) || value.is(K::kFunction) || value.is(K::kMethod);
    if (name == "sequence" || name == "iterable") {
      return value.is(K::kString) || value.is_list() || value.is(K::kMap) ||
             value.is(K::kUndefined) || (name == "iterable" && value.is(K::kLoop));
    }
    constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
        {"==", "=="}, {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"in", "in"},
        {"lt", "<"},  {"le", "<="}, {"gt", ">"},       {"ge", ">="}};
    for (const auto& [known, sign] : kSigns) {
      if (name == known) return holds(value, sign, other());
    }
    if (name == "sameas") return value.kind == other().kind && equal(value, other());
    if (name == "lower") return str(value) == lower(str(value));
    if (name == "upper") return str(value) == upper(str(value));
    if (!value.is(K::kInteger)) refuse(cat("the test ", shown(name), " expected an integer"));
    if (name == "odd") return value.integer % 2 != 0;
    if (name == "even") return value.integer % 2 == 0;
    const Value rest = arithmetic("%", value, other());  // divisibleby
    return !truth(rest);
  }

  const std::vector<NodePtr>& tree_;
  std::vector<Frame> frames_;
  size_t floor_ = 0;  // the first frame of the macro that runs; the first of all is seen everywhere
  std::vector<std::string> outputs_;
  int64_t steps_ = 0;
  int depth_ = 0, loops_ = 0, calls_ = 0;
};

}  // namespace

bool is_filter(std::string_view name) { return is_any(name, kFilters); }
bool is_test(std::string_view name) { return is_any(name, kTests); }

}  // namespace jinja

struct JinjaTemplate::Tree {
  std::vector<jinja::NodePtr> nodes;
};

JinjaTemplate::JinjaTemplate(std::string_view text)
    : tree_(std::make_unique<Tree>(Tree{jinja::parse(text)})) {}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(const Json& names) const {
  return jinja::Run(tree_->nodes, names).render();
}

}  // namespace split
