// The values of a run as Python works with them, each step and byte paid for by its meter: the base
// of evaluation, filters, tests and strings' methods. Knows no names and no template.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/tree.h"

namespace split::jinja {

[[noreturn]] void refuse(const std::string& what);

struct Arguments {
  std::vector<Value> values;
  std::vector<Member> named;

  // The argument at `at`, or of this name, or undefined.
  Value get(size_t at, std::string_view name) const;
  bool has(size_t at, std::string_view name) const {
    return !get(at, name).is(Value::Kind::kUndefined);
  }
};

// One thread, one run.
class Values {
 public:
  explicit Values(const JinjaCaller& caller) : meter(caller) {}

  Meter meter;    // outlives all values
  int depth = 0;  // recursion depth

  // Makes a value with a box, which is paid for until it ends.
  Value with_box(Value::Kind kind);
  // Makes a value of the made text.
  Value taken(TextMade& made);
  Value text_of(std::string_view text);
  // Makes an undefined value, whose name is for messages.
  Value undefined(std::string_view name);
  Value list_of(std::initializer_list<Value> items, Value::Kind kind = Value::Kind::kList);
  Value map_of(const std::vector<Member>& members);
  // Adds a new member to a map or namespace.
  void add_member(Box& box, std::string key, Value value);
  void set_member(Box& box, const std::string& key, Value value);
  // Moves texts: the reader of the JSON has paid for them.
  Value of_json(Json json);
  Value method(const Value& self, const std::string& name);

  Member* find(std::vector<Member>& members, std::string_view key);
  // std::string's find, or rfind; costs the bytes compared.
  size_t find(std::string_view text, std::string_view part, size_t from = 0, bool last = false);
  Value member(const Value& map, std::string_view key);
  Value item(const Value& value, const Value& key);
  // value[parts[0]:parts[1]:parts[2]]
  Value slice(const Value& value, const std::array<std::optional<int64_t>, 3>& parts);
  size_t characters_of(const Value& text);
  Value range(const std::vector<Value>& arguments);
  // Makes a list of the values that Python's iteration gives.
  Value iterate(const Value& value);
  Value map_method(const Value& map, std::string_view name, const Arguments& all);

  bool contains(const Value& whole, const Value& part);
  bool ordered(const Value& a, const Value& b, std::string_view sign);
  bool holds(const Value& left, std::string_view sign, const Value& right);
  Value binary(std::string_view sign, const Value& a, const Value& b);
};

Value arithmetic(std::string_view sign, const Value& a, const Value& b);
Value signed_number(const Value& value, bool minus);
void expect_defined(const Value& value);
const std::string& need_text(const Value& value, std::string_view what);

// A list while it is made.
class ListMade {
 public:
  explicit ListMade(Values& values, Value::Kind kind = Value::Kind::kList)
      : meter_(values.meter), list_(values.with_box(kind)) {}
  void add(Value value);
  Value take() { return std::move(list_); }
  const Value& value() const { return list_; }

 private:
  Meter& meter_;
  Value list_;
};

constexpr int kMostDepth = 400;  // the tree's depth while it runs, macros in macros included

// Counts a recursion until this is destroyed.
struct Deeper {
  Deeper(int& depth, int most) : depth(depth) {
    if (depth >= most) refuse_depth();
    ++depth;
  }
  ~Deeper() { --depth; }
  [[noreturn]] static void refuse_depth();
  int& depth;
};

// The state behind `loop`.
struct Loop {
  const std::vector<Value>* items;
  size_t at = 0;
  int depth = 1;
};

// --- names.cpp
Value attribute(Values& values, const Value& value, const std::string& name, int line);
Value function(Values& values, const std::string& name, const Arguments& all);

// --- filters.cpp; the names are known (is_filter, is_test)
Value filter(Values& values, std::string_view name, const Value& value, const Arguments& all,
             int line);
bool test(Values& values, std::string_view name, const Value& value, const std::vector<Value>& all);

Value join(Values& values, const Value& value, std::string_view between,
           const std::string& attribute_name);

// --- strings.cpp
bool is_string_method(std::string_view name);
Value string_method(Values& values, const Value& self, std::string_view name, const Arguments& all,
                    int line);
Value replace(Values& values, std::string_view text, std::string_view from, std::string_view to,
              const Value& count);

// Returns the row of a table {names, run} that has this name, or null.
template <typename Table>
auto row_of(const Table& table, std::string_view name) {
  const auto at = std::ranges::find_if(
      table, [&](const auto& row) { return !name.empty() && is_any(name, row.names); });
  return at == std::end(table) ? nullptr : &*at;
}

}  // namespace split::jinja
