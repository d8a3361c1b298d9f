#include "text/jinja/jinja.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <deque>
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

enum class Flow : uint8_t { kOn, kBreak, kContinue };

class Run {
 public:
  Run(const std::vector<NodePtr>& tree, Json names, const JinjaCaller& caller)
      : meter_(caller), tree_(tree) {
    frames_.emplace_back();
    for (const char* name : {"raise_exception", "strftime_now", "range", "namespace", "dict"}) {
      frames_[0].emplace_back(name, boxed(K::kFunction, name));
    }
    for (Json::Member& one : names.take_object()) define(one.name, of_json(std::move(one.value)));
  }

  std::string render() {
    outputs_.emplace_back(meter_);
    execute(tree_);
    return outputs_.back().take().first;
  }

 private:
  using Frame = std::vector<Member>;

  // A list while it is made.
  class ListMade {
   public:
    explicit ListMade(Run& run, K kind = K::kList) : run_(run), list_(run.with_box(kind)) {}
    void add(Value value) {
      Box& box = *list_.box;
      put_into(box, value);
      run_.meter_.items(1);
      run_.meter_.grow(box.items, box.held);
      box.items.push_back(std::move(value));
    }
    Value take() { return std::move(list_); }
    const Value& value() const { return list_; }

   private:
    Run& run_;
    Value list_;
  };

  struct Deeper {
    explicit Deeper(int& depth, int most) : depth(depth) {
      if (depth >= most) refuse("the template nests too deeply");
      ++depth;
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  void spend(size_t steps) { meter_.steps(steps); }

  // A value with a box, which is paid for as long as it is there.
  Value with_box(K kind) {
    constexpr size_t kBox = sizeof(Box) + 32;  // bytes, with those of its allocation
    meter_.hold(kBox);
    Value value(kind);
    value.box = std::make_shared<Box>();
    value.box->meter = &meter_;
    value.box->held = kBox;
    return value;
  }
  // The text that was made, as a value.
  Value taken(TextMade& made) {
    Value value = with_box(K::kString);
    auto [text, held] = made.take();
    value.box->text = std::move(text);
    value.box->held += held;
    return value;
  }
  Value text_of(std::string_view text) {
    TextMade made(meter_);
    made.add(text);
    return taken(made);
  }
  // One whose name is for messages.
  Value undefined(std::string_view name) {
    Value value = with_box(K::kUndefined);
    value.box->text = name.substr(0, 80);
    return value;
  }

  // Values in a list, tuple or map, which then may not be what changes or ends.
  static void put_into(Box& box, const Value& value) {
    const bool of_loop = value.is(K::kMethod) && value.items()[0].is(K::kLoop);
    if (value.is(K::kNamespace) || value.is(K::kLoop) || of_loop) {
      refuse(cat("a ", type_name(of_loop ? value.items()[0] : value),
                 " in another value is not supported"));
    }
    const bool holds = value.is_list() || value.is(K::kMap) || value.is(K::kMethod);
    if (holds && value.box != nullptr) box.depth = std::max(box.depth, value.box->depth + 1);
    if (box.depth > kMostNested) refuse("values nest too deeply");
  }
  Value list_of(std::initializer_list<Value> items, K kind = K::kList) {
    ListMade list(*this, kind);
    for (const Value& item : items) list.add(item);
    return list.take();
  }
  // Adds to a map or namespace a member that is not there yet.
  void add_member(Box& box, std::string key, Value value) {
    put_into(box, value);
    meter_.items(1);
    meter_.grow(box.members, box.held);
    const size_t bytes = key.size() < sizeof(std::string) / 2 ? 0 : key.size() + 1;
    meter_.hold(bytes);
    box.held += bytes;
    box.members.emplace_back(std::move(key), std::move(value));
  }
  Value map_of(const std::vector<Member>& members) {
    Value map = with_box(K::kMap);
    for (const auto& [key, value] : members) add_member(*map.box, key, value);
    return map;
  }
  Member* find(std::vector<Member>& members, std::string_view key) {
    meter_.bytes(members.size());
    for (Member& one : members) {
      if (one.first.size() != key.size()) continue;
      meter_.bytes(key.size());
      if (one.first == key) return &one;
    }
    return nullptr;
  }
  void set_member(Box& box, const std::string& key, Value value) {
    put_into(box, value);
    Member* const found = find(box.members, key);
    meter_.bytes(key.size());
    found == nullptr ? add_member(box, key, std::move(value))
                     : void(found->second = std::move(value));
  }

  // Texts move: what the names were read from has paid for them.
  Value of_json(Json json) {
    if (json.is_null()) return none();
    if (json.is_boolean()) return boolean(json.get<bool>());
    if (json.is_number_integer()) {
      const bool large = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
      return large ? floating(json.get<double>()) : integer(json.get<int64_t>());
    }
    if (json.is_number()) return floating(json.get<double>());
    if (json.is_string()) {
      Value value = with_box(K::kString);
      value.box->text = json.take_text();
      return value;
    }
    if (json.is_array()) {
      ListMade list(*this);
      for (Json& one : json.take_array()) list.add(of_json(std::move(one)));
      return list.take();
    }
    Value map = with_box(K::kMap);
    for (Json::Member& one : json.take_object()) {
      add_member(*map.box, std::move(one.name), of_json(std::move(one.value)));
    }
    return map;
  }

  // Names.
  void define(const std::string& name, Value value) {
    Frame& frame = frames_.back();
    Member* const found = find(frame, name);
    found == nullptr ? void(frame.emplace_back(name, std::move(value)))
                     : void(found->second = std::move(value));
  }
  Value look_up(const std::string& name) {
    for (size_t i = frames_.size(); i > floor_; --i) {
      if (const Member* found = find(frames_[i - 1], name)) return found->second;
    }
    if (floor_ > 0) {
      if (const Member* found = find(frames_[0], name)) return found->second;
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

  Flow statement(const Node& node) {
    spend(1);
    switch (node.op) {
      case Op::kText:
        outputs_.back().add(node.text);
        return Flow::kOn;
      case Op::kPrint: {
        const Value value = evaluate(*node.kids[0]);
        TextMade scratch(meter_);
        outputs_.back().add(str(value, scratch));
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
    outputs_.emplace_back(meter_);
    const Scope scope(*this);
    execute(body);
    Value text = taken(outputs_.back());
    outputs_.pop_back();
    return text;
  }

  void assign(const Node& target, Value value) {
    if (target.op == Op::kName) return define(target.text, std::move(value));
    const Value space = look_up(target.kids[0]->text);
    if (!space.is(K::kNamespace)) refuse("cannot assign attribute on non-namespace object");
    set_member(*space.box, target.text, std::move(value));
  }

  void set(const Node& node) {
    const size_t targets = node.kids.size() - 1;
    Value value = evaluate(*node.kids[targets]);
    if (targets == 1) return assign(*node.kids[0], std::move(value));
    const Value parts = unpacked(value, targets);
    for (size_t i = 0; i < targets; ++i) assign(*node.kids[i], parts.items()[i]);
  }

  Value unpacked(const Value& value, size_t count) {
    Value parts = iterate(value);
    if (parts.items().size() != count) {
      refuse(cat("expected ", count, " values to unpack, got ", parts.items().size()));
    }
    return parts;
  }

  void unpack(const std::vector<std::string>& names, const Value& item) {
    if (names.size() == 1) return define(names[0], item);
    const Value parts = unpacked(item, names.size());
    for (size_t i = 0; i < names.size(); ++i) define(names[i], parts.items()[i]);
  }

  Flow loop(const Node& node) {
    Value list = iterate(evaluate(*node.kids[0]));
    if (node.kids[1] != nullptr) {
      ListMade wanted(*this);
      for (const Value& item : list.items()) {
        spend(1);
        const Scope scope(*this);
        unpack(node.names, item);
        if (truth(evaluate(*node.kids[1]))) wanted.add(item);
      }
      list = wanted.take();
    }
    const std::vector<Value>& items = list.items();
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

  // A list of the values that Python gives one after the other.
  Value iterate(const Value& value) {
    if (value.is_list()) return value;
    ListMade list(*this);
    if (value.is(K::kMap)) {
      for (const auto& member : value.members()) {
        spend(1);
        list.add(text_of(member.first));
      }
    } else if (value.is(K::kString)) {
      for (std::string_view rest = value.text(); !rest.empty();) {
        const size_t length = bytes_of_characters(rest, 1);
        spend(1);
        list.add(text_of(rest.substr(0, length)));
        rest.remove_prefix(length);
      }
    } else if (!value.is(K::kUndefined)) {
      refuse(cat("'", type_name(value), "' object is not iterable"));
    }
    return list.take();
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
        ListMade list(*this, node.op == Op::kList ? K::kList : K::kTuple);
        for (const NodePtr& kid : node.kids) list.add(evaluate(*kid));
        return list.take();
      }
      case Op::kMap: {
        Value map = with_box(K::kMap);
        for (size_t i = 0; i < node.kids.size(); i += 2) {
          const Value key = evaluate(*node.kids[i]);
          if (!key.is(K::kString)) throw JinjaUnsupported(node.line, "a key that is no string");
          set_member(*map.box, key.text(), evaluate(*node.kids[i + 1]));
        }
        return map;
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
    if (sign == "==" || sign == "!=") return equal(left, right, meter_) == (sign == "==");
    if (sign == "in" || sign == "not in") return contains(right, left) == (sign == "in");
    return ordered(left, right, sign);
  }

  // As std::string's find, or rfind; its cost is what it compares.
  size_t find(std::string_view text, std::string_view part, size_t from = 0, bool last = false) {
    if (part.size() > text.size()) return text.npos;
    if (part.empty()) return last ? text.size() : from <= text.size() ? from : text.npos;
    const size_t end = text.size() - part.size();  // where it may begin
    for (size_t at = last ? end : from;;) {
      const size_t next = last ? text.rfind(part[0], at) : text.find(part[0], at);
      const size_t seen = next == text.npos ? last ? 0 : text.size() : next;
      meter_.bytes(last ? at - seen : seen - at);
      if (next == text.npos || next > end) return text.npos;
      const auto same =
          std::mismatch(part.begin(), part.end(), text.begin() + static_cast<ptrdiff_t>(next))
              .first;
      meter_.bytes(4 + static_cast<size_t>(same - part.begin()));
      if (same == part.end()) return next;
      if (last && next == 0) return text.npos;
      at = last ? next - 1 : next + 1;
    }
  }

  bool contains(const Value& whole, const Value& part) {
    if (whole.is(K::kString)) {
      if (!part.is(K::kString)) {
        refuse(cat("'in <string>' requires string as left operand, not ", type_name(part)));
      }
      return find(whole.text(), part.text()) != std::string::npos;
    }
    if (whole.is(K::kMap)) {
      return part.is(K::kString) && find(whole.box->members, part.text()) != nullptr;
    }
    if (whole.is(K::kUndefined)) return false;
    if (!whole.is_list()) refuse(cat("argument of type '", type_name(whole), "' is not iterable"));
    return std::ranges::any_of(whole.items(),
                               [&](const Value& one) { return equal(one, part, meter_); });
  }

  bool ordered(const Value& a, const Value& b, std::string_view sign) {
    meter_.items(1);
    int order;
    if (a.is_number() && b.is_number()) {
      const double x = a.as_double(), y = b.as_double();
      if (std::isnan(x) || std::isnan(y)) return false;
      const bool whole = !a.is(K::kFloat) && !b.is(K::kFloat);
      const bool less = whole ? a.integer < b.integer : x < y;
      const bool more = whole ? a.integer > b.integer : x > y;
      order = less ? -1 : more ? 1 : 0;
    } else if (a.is(K::kString) && b.is(K::kString)) {
      meter_.bytes(std::min(a.text().size(), b.text().size()));
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
    if (sign == "~" || (sign == "+" && a.is(K::kString) && b.is(K::kString))) {
      TextMade out(meter_), scratch(meter_);
      out.add(str(a, scratch));
      TextMade other(meter_);
      out.add(str(b, other));
      return taken(out);
    }
    if (sign == "+" && a.is_list() && a.kind == b.kind) {
      ListMade list(*this, a.kind);
      for (const Value* of : {&a, &b}) {
        for (const Value& one : of->items()) list.add(one);
      }
      return list.take();
    }
    if (sign == "*" && a.is(K::kString) && b.is(K::kInteger)) {
      TextMade out(meter_);
      const int64_t times = a.text().empty() ? 0 : b.integer;
      for (int64_t i = 0; i < times; ++i) out.add(a.text());
      return taken(out);
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
    const Member* const found = find(map.box->members, key);
    return found == nullptr ? undefined(key) : found->second;
  }

  Value method(const Value& self, const std::string& name) {
    Value made = with_box(K::kMethod);
    made.box->text = name;
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
    const bool list = value.is_list();
    if (key.is(K::kInteger) && (list || value.is(K::kString))) {
      const auto size = static_cast<int64_t>(list ? value.items().size() : characters_of(value));
      const int64_t at = key.integer < 0 ? key.integer + size : key.integer;
      if (at < 0 || at >= size) return undefined(cat(key.integer));
      if (list) return value.items()[static_cast<size_t>(at)];
      std::string_view text = value.text();
      text.remove_prefix(bytes_of_characters(text, static_cast<size_t>(at)));
      return text_of(text.substr(0, bytes_of_characters(text, 1)));
    }
    TextMade scratch(meter_);
    return undefined(str(key, scratch).substr(0, 64));
  }
  size_t characters_of(const Value& text) {
    meter_.bytes(text.text().size());
    return characters(text.text());
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
    const bool list = value.is_list();
    if (!list && !value.is(K::kString)) {
      expect_defined(value);
      refuse(cat("'", type_name(value), "' object is not subscriptable"));
    }
    const size_t count = list ? value.items().size() : characters_of(value);
    const auto size = static_cast<int64_t>(count);
    const int64_t step = part[2].value_or(1);
    if (step == 0) refuse("slice step cannot be zero");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto bound = [&](std::optional<int64_t> at, int64_t otherwise) {
      if (!at) return otherwise;
      return std::clamp(*at < 0 && *at >= -size ? *at + size : *at < 0 ? low : *at, low, high);
    };
    const int64_t begin = bound(part[0], step > 0 ? low : high);
    const int64_t end = bound(part[1], step > 0 ? high : low);
    if (!list) return slice_of_text(value.text(), begin, end, step, count);
    ListMade items(*this, value.kind);
    each_of_slice(begin, end, step, size, [&](size_t at) { items.add(value.items()[at]); });
    return items.take();
  }
  template <typename Each>
  static void each_of_slice(int64_t begin, int64_t end, int64_t step, int64_t size,
                            const Each& each) {
    const int64_t stride = std::clamp<int64_t>(step, -size - 1, size + 1);
    for (int64_t at = begin; stride > 0 ? at < end : at > end; at += stride) {
      each(static_cast<size_t>(at));
    }
  }
  Value slice_of_text(std::string_view text, int64_t begin, int64_t end, int64_t step,
                      size_t count) {
    if (step == 1) {
      const auto first = static_cast<size_t>(begin),
                 last = static_cast<size_t>(std::max(begin, end));
      text.remove_prefix(bytes_of_characters(text, first));
      return text_of(text.substr(0, bytes_of_characters(text, last - first)));
    }
    const Held held(meter_, (count + 1) * sizeof(size_t));
    const std::vector<size_t> starts = starts_of_characters(text);
    TextMade out(meter_);
    each_of_slice(begin, end, step, static_cast<int64_t>(count), [&](size_t at) {
      out.add(text.substr(starts[at], starts[at + 1] - starts[at]));
    });
    return taken(out);
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
    constexpr size_t kMostSaid = 1024;  // bytes
    TextMade scratch(meter_);
    if (name == "raise_exception") {
      refuse(std::string(str(all.get(0, "message"), scratch).substr(0, kMostSaid)));
    }
    if (name == "strftime_now") {
      return text_of(now(std::string(str(all.get(0, "format"), scratch))));
    }
    if (name == "range") return range(all.values);
    if (name == "dict") return map_of(all.named);
    Value space = map_of(all.named);  // namespace
    if (!all.values.empty()) {
      if (!all.values[0].is(K::kMap)) refuse("namespace expected a mapping");
      for (const auto& [key, value] : all.values[0].members()) set_member(*space.box, key, value);
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
    ListMade items(*this);
    for (int64_t at = begin; step > 0 ? at < end : at > end;) {
      spend(1);
      items.add(integer(at));
      if (__builtin_add_overflow(at, step, &at)) break;
    }
    return items.take();
  }

  Value map_method(const Value& map, const std::string& name, const Arguments& all) {
    if (name == "get") {
      const Value key = all.get(0, "key");
      Value found = key.is(K::kString) ? member(map, key.text()) : undefined("");
      if (!found.is(K::kUndefined)) return found;
      return all.has(1, "default") ? all.get(1, "default") : none();
    }
    ListMade items(*this);
    for (const auto& [key, value] : map.members()) {
      spend(1);
      items.add(name == "keys"     ? text_of(key)
                : name == "values" ? value
                                   : list_of({text_of(key), value}, K::kTuple));
    }
    return items.take();
  }

  static const std::string& need_text(const Value& value, std::string_view what) {
    if (!value.is(K::kString)) refuse(cat(what, " expected a string, got ", type_name(value)));
    return value.text();
  }

  Value string_method(const Value& self, const std::string& name, const Arguments& all, int line) {
    const std::string& text = self.text();
    meter_.bytes(text.size());
    const auto argument = [&](size_t at) -> std::string_view {  // into `all`
      return need_text(all.get(at, ""), cat(name, "()"));
    };
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
      const bool given = !all.values.empty() && !all.values[0].is(K::kNone);
      const std::string_view set = given ? argument(0) : std::string_view();
      if (given && set.empty()) return self;
      meter_.bytes(text.size() * set.size());
      return text_of(strip(text, set, name != "rstrip", name != "lstrip"));
    }
    if (name == "startswith" || name == "endswith") {
      const Value what = all.get(0, "");
      const auto holds = [&](const Value& part) {
        const std::string& one = need_text(part, name);
        meter_.bytes(4 + std::min(one.size(), text.size()));
        return name == "startswith" ? text.starts_with(one) : text.ends_with(one);
      };
      if (what.is(K::kTuple)) return boolean(std::ranges::any_of(what.items(), holds));
      return boolean(holds(what));
    }
    if (name == "split" || name == "rsplit") return split(text, all, name == "rsplit");
    if (name == "splitlines") {
      ListMade lines(*this);
      for (std::string_view rest = text; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view one = rest.substr(0, end);
        if (end < rest.size() && one.ends_with('\r')) one.remove_suffix(1);
        spend(1);
        lines.add(text_of(one));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      return lines.take();
    }
    if (name == "replace") {
      return replace(text, argument(0), argument(1), all.get(2, "count"));
    }
    if (name == "removeprefix" || name == "removesuffix") {
      const std::string_view part = argument(0);
      const bool front = name == "removeprefix";
      if (!(front ? text.starts_with(part) : text.ends_with(part))) return self;
      const std::string_view all_of_it = text;
      return text_of(front ? all_of_it.substr(part.size())
                           : all_of_it.substr(0, text.size() - part.size()));
    }
    if (name == "join") return join(all.get(0, ""), text, {});
    if (name == "find" || name == "index") {
      const size_t at = find(text, argument(0));
      if (at == text.npos && name == "index") refuse("substring not found");
      if (at == text.npos) return integer(-1);
      return integer(static_cast<int64_t>(characters(std::string_view(text).substr(0, at))));
    }
    if (name == "count") {
      const std::string_view part = argument(0);
      if (part.empty()) throw JinjaUnsupported(line, "count() of nothing");
      int64_t count = 0;
      for (size_t at = 0; (at = find(text, part, at)) != text.npos; at += part.size()) ++count;
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
    ListMade parts(*this);
    const auto add = [&](std::string_view part) {
      spend(1);
      parts.add(text_of(part));
    };
    std::string_view rest = text;
    if (!separator.is(K::kString)) {
      if (from_right && left != INT64_MAX) refuse("rsplit() expected a separator");
      for (rest = strip(rest, {}, true, false); !rest.empty();
           rest = strip(rest, {}, true, false)) {
        size_t end = 0;
        while (end < rest.size() && !begins_with_space(rest.substr(end))) ++end;
        if (left-- == 0) {
          add(strip(rest, {}, false, true));
          break;
        }
        add(rest.substr(0, end));
        rest.remove_prefix(end);
      }
      return parts.take();
    }
    const std::string& by = separator.text();
    if (by.empty()) refuse("empty separator");
    for (; left > 0; --left) {
      const size_t at = find(rest, by, 0, from_right);
      if (at == rest.npos) break;
      add(from_right ? rest.substr(at + by.size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + by.size());
    }
    add(rest);
    Value list = parts.take();
    if (from_right) std::ranges::reverse(list.box->items);
    return list;
  }

  Value replace(std::string_view text, std::string_view from, std::string_view to,
                const Value& count) {
    int64_t left = count.is(K::kInteger) && count.integer >= 0 ? count.integer : INT64_MAX;
    if (from.empty()) refuse("replace() expected something to replace");
    TextMade out(meter_);
    for (size_t at = 0; left > 0 && (at = find(text, from)) != text.npos; --left) {
      out.add(text.substr(0, at));
      out.add(to);
      text.remove_prefix(at + from.size());
    }
    out.add(text);
    return taken(out);
  }

  // The value of an attribute that a filter names: "a.b" goes in.
  Value attribute_of(const Value& value, const std::string& name) {
    Value found = value;
    for (std::string_view rest = name; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      meter_.bytes(part.size());
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      const bool number = std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
      int64_t index = 0;
      if (number) std::from_chars(part.data(), part.data() + part.size(), index);
      if (found.is(K::kUndefined)) return found;
      found = item(found, number ? integer(index) : text_of(part));
    }
    return found;
  }

  Value join(const Value& value, std::string_view between, const std::string& attribute_name) {
    TextMade out(meter_);
    bool first = true;
    const Value list = iterate(value);
    for (const Value& one : list.items()) {
      if (!std::exchange(first, false)) out.add(between);
      TextMade scratch(meter_);
      const Value part = attribute_name.empty() ? one : attribute_of(one, attribute_name);
      out.add(str(part, scratch));
    }
    return taken(out);
  }

  // select, reject, selectattr and rejectattr.
  Value selected(const Value& value, const Arguments& all, bool by_attribute, bool wanted) {
    ListMade kept(*this);
    const size_t from = by_attribute ? 1 : 0;
    const std::string attribute_name =
        by_attribute ? need_text(all.get(0, "attribute"), "selectattr") : std::string();
    std::string test_name;
    if (all.values.size() > from) test_name = need_text(all.values[from], "select");
    if (!test_name.empty() && !is_test(test_name)) refuse(cat("no test ", shown(test_name)));
    const std::vector<Value> rest(
        all.values.begin() + static_cast<ptrdiff_t>(std::min(all.values.size(), from + 1)),
        all.values.end());
    const Value list = iterate(value);
    for (const Value& one : list.items()) {
      spend(1);
      const Value tested = by_attribute ? attribute_of(one, attribute_name) : one;
      const bool holds = test_name.empty() ? truth(tested) : test(test_name, tested, rest);
      if (holds == wanted) kept.add(one);
    }
    return kept.take();
  }

  Value mapped(const Value& value, const Arguments& all, int line) {
    ListMade items(*this);
    const bool by_attribute = all.values.empty();
    const std::string name =
        need_text(by_attribute ? all.get(0, "attribute") : all.values[0], "map");
    if (!by_attribute && !is_filter(name))
      throw JinjaUnsupported(line, cat("the filter ", shown(name)));
    Arguments rest = all;
    if (!by_attribute) rest.values.erase(rest.values.begin());
    const Value list = iterate(value);
    for (const Value& one : list.items()) {
      spend(1);
      if (!by_attribute) {
        items.add(filter(name, one, rest, line));
        continue;
      }
      Value found = attribute_of(one, name);
      if (found.is(K::kUndefined) && all.has(1, "default")) found = all.get(1, "default");
      items.add(std::move(found));
    }
    return items.take();
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
    TextMade out(meter_);
    to_json(value, style, out);
    return taken(out);
  }

  int64_t whole(const Value& value, int64_t otherwise) {
    if (value.is(K::kFloat)) {
      return std::abs(value.number) < 9e18 ? static_cast<int64_t>(value.number) : otherwise;
    }
    if (value.is_number()) return value.integer;
    if (!value.is(K::kString)) return otherwise;
    meter_.bytes(2 * value.text().size());
    const std::string_view text = strip(value.text(), {}, true, true);
    if (const auto number = number_in<int64_t>(text)) return *number;
    const auto fraction = number_in<double>(text);
    return fraction && std::abs(*fraction) < 9e18 ? static_cast<int64_t>(*fraction) : otherwise;
  }

  Value length_of(const Value& value) {
    size_t size = 0;
    if (value.is(K::kString)) {
      size = characters_of(value);
    } else if (value.is_list()) {
      size = value.items().size();
    } else if (value.is(K::kMap)) {
      size = value.members().size();
    } else if (!value.is(K::kUndefined)) {
      refuse(cat("object of type '", type_name(value), "' has no len()"));
    }
    return integer(static_cast<int64_t>(size));
  }

  Value sorted(const Value& value, const Arguments& all, bool map) {
    const Value list = map ? map_method(value, "items", {}) : iterate(value);
    const std::vector<Value>& items = list.items();
    const Value by = all.get(SIZE_MAX, "attribute");
    const bool cased = truth(all.get(SIZE_MAX, "case_sensitive"));
    using Keyed = std::pair<Value, const Value*>;
    const Held held(meter_, 2 * items.size() * sizeof(Keyed));  // sorting takes a half more
    std::vector<Keyed> keyed;
    keyed.reserve(items.size());
    for (const Value& one : items) {
      Value key = map ? one.items()[0] : by.is(K::kString) ? attribute_of(one, by.text()) : one;
      if (!cased && key.is(K::kString)) key = lowered(key);
      keyed.emplace_back(std::move(key), &one);
    }
    std::ranges::stable_sort(
        keyed, [&](const auto& a, const auto& b) { return ordered(a.first, b.first, "<"); });
    if (truth(all.get(SIZE_MAX, "reverse"))) std::ranges::reverse(keyed);
    ListMade out(*this);
    for (const Keyed& one : keyed) out.add(*one.second);
    return out.take();
  }
  Value lowered(const Value& value) {
    TextMade out(meter_);
    lower(value.text(), out);
    return taken(out);
  }

  Value indented(std::string_view text, const Arguments& all) {
    const Value width = all.get(0, "width");
    const int64_t count = width.is(K::kString) ? 0 : std::clamp<int64_t>(whole(width, 4), 0, 1024);
    const std::string spaces(static_cast<size_t>(count), ' ');
    const std::string_view pad = width.is(K::kString) ? width.text() : spaces;
    const bool first = truth(all.get(1, "first")), blank = truth(all.get(2, "blank"));
    TextMade out(meter_);
    std::string_view rest = text;
    for (bool begins = true;; begins = false) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      if (begins ? first : blank || !line.empty()) out.add(pad);
      out.add(line);
      if (end == rest.npos) return taken(out);
      out.add('\n');
      rest.remove_prefix(end + 1);
    }
  }

  Value filter(std::string_view name, const Value& value, const Arguments& all, int line) {
    spend(1);
    TextMade scratch(meter_), out(meter_);
    const auto text = [&] { return str(value, scratch); };
    if (name == "trim") {
      const Value set = all.get(0, "chars");
      const std::string_view these = set.is(K::kString) ? set.text() : std::string_view();
      const std::string_view whole = text();
      meter_.bytes(whole.size() * (1 + these.size()));
      return text_of(strip(whole, these, true, true));
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
    for (const auto& [known, make] :
         {std::pair{"upper", &upper}, std::pair{"lower", &lower},
          std::pair{"capitalize", &capitalized}, std::pair{"title", &title}}) {
      if (name != known) continue;
      make(text(), out);
      return taken(out);
    }
    if (name == "join") {
      const Value by = all.get(1, "attribute"), between = all.get(0, "d");
      return join(value, str(between, scratch), by.is(K::kString) ? by.text() : "");
    }
    if (name == "list") return listed(value, false);
    if (name == "first" || name == "last") {
      const Value list = iterate(value);
      const std::vector<Value>& items = list.items();
      if (items.empty()) return undefined(cat("no ", name, " item"));
      return name == "first" ? items.front() : items.back();
    }
    if (name == "replace") {
      const Value from = all.get(0, "old"), to = all.get(1, "new");
      TextMade other(meter_);
      return replace(text(), str(from, out), str(to, other), all.get(2, "count"));
    }
    if (name == "items") {
      if (value.is(K::kUndefined)) return iterate(value);
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
      meter_.bytes(value.text().size());
      const std::string_view digits = strip(value.text(), {}, true, true);
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
      return floating(number);
    }
    if (name == "abs") {
      if (!value.is_number()) refuse("abs expected a number");
      return value.as_double() < 0 ? signed_number(value, true) : value;
    }
    if (name == "unique") {
      ListMade kept(*this), keys(*this);
      const Value list = iterate(value);
      for (const Value& one : list.items()) {
        const Value key = one.is(K::kString) ? lowered(one) : one;
        if (contains(keys.value(), key)) continue;
        keys.add(key);
        kept.add(one);
      }
      return kept.take();
    }
    if (is_any(name, {"select", "reject", "selectattr", "rejectattr"})) {
      return selected(value, all, name.ends_with("attr"), name.starts_with("select"));
    }
    if (name == "map") return mapped(value, all, line);
    if (name == "indent") return indented(text(), all);
    if (name == "reverse") {
      if (value.is(K::kString)) throw JinjaUnsupported(line, "the filter 'reverse' of a string");
      return listed(value, true);
    }
    if (name == "sum") {
      Value total = integer(0);
      const Value list = iterate(value);
      for (const Value& one : list.items()) total = binary("+", total, one);
      return total;
    }
    if (name == "min" || name == "max") {
      const Value list = iterate(value);
      const std::vector<Value>& items = list.items();
      if (items.empty()) return undefined(name);
      const Value* best = &items[0];
      for (const Value& one : items) {
        if (ordered(one, *best, name == "min" ? "<" : ">")) best = &one;
      }
      return *best;
    }
    // e, escape
    for (const char c : text()) {
      constexpr std::string_view kMarks = "&<>\"'";
      constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
      const size_t which = kMarks.find(c);
      which == kMarks.npos ? out.add(c) : out.add(kNames[which]);
    }
    return taken(out);
  }

  // A list of its own.
  Value listed(const Value& value, bool reversed) {
    const Value from = iterate(value);
    ListMade list(*this);
    for (const Value& one : from.items()) list.add(one);
    Value made = list.take();
    if (reversed) std::ranges::reverse(made.box->items);
    return made;
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
    if (name == "sameas") return value.kind == other().kind && equal(value, other(), meter_);
    if (name == "lower" || name == "upper") {
      TextMade scratch(meter_), out(meter_);
      const std::string_view text = str(value, scratch);
      name == "lower" ? lower(text, out) : upper(text, out);
      return text == out.view();
    }
    if (!value.is(K::kInteger)) refuse(cat("the test ", shown(name), " expected an integer"));
    if (name == "odd") return value.integer % 2 != 0;
    if (name == "even") return value.integer % 2 == 0;
    const Value rest = arithmetic("%", value, other());  // divisibleby
    return !truth(rest);
  }

  Meter meter_;  // first: values outlive all but it
  const std::vector<NodePtr>& tree_;
  std::vector<Frame> frames_;
  size_t floor_ = 0;  // the first frame of the macro that runs; the first of all is seen everywhere
  std::deque<TextMade> outputs_;
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

std::string JinjaTemplate::render(Json names, const JinjaCaller& caller) const {
  return jinja::Run(tree_->nodes, std::move(names), caller).render();
}

}  // namespace split
