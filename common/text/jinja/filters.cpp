// Filters and tests, by name.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/bytes.h"
#include "base/sort.h"
#include "text/jinja/values.h"

namespace split::jinja {
namespace {

using K = Value::Kind;

struct Call {
  Values& v;
  std::string_view name;
  const Value& value;
  const Arguments& all;
  int line;
  TextMade scratch{v.meter}, out{v.meter};

  std::string_view text() { return str(value, scratch); }
};

// Returns the attribute that a filter names: "a.b" is nested.
Value attribute_of(Values& v, const Value& value, const std::string& name) {
  Value found = value;
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    v.meter.bytes(part.size());
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const bool number = std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    int64_t index = 0;
    if (number) std::from_chars(part.data(), part.data() + part.size(), index);
    if (found.is(K::kUndefined)) return found;
    found = v.item(found, number ? integer(index) : v.text_of(part));
  }
  return found;
}

// Runs select, reject, selectattr and rejectattr.
Value chosen(Call& c) {
  Values& v = c.v;
  const bool by_attribute = c.name.ends_with("attr"), wanted = c.name.starts_with("select");
  const Arguments& all = c.all;
  ListMade kept(v);
  const size_t from = by_attribute ? 1 : 0;
  const std::string attribute_name =
      by_attribute ? need_text(all.get(0, "attribute"), "selectattr") : std::string();
  std::string test_name;
  if (all.values.size() > from) test_name = need_text(all.values[from], "select");
  if (!test_name.empty() && !is_test(test_name)) refuse(cat("no test ", shown(test_name)));
  const std::vector<Value> rest(
      all.values.begin() + static_cast<ptrdiff_t>(std::min(all.values.size(), from + 1)),
      all.values.end());
  const Value list = v.iterate(c.value);
  for (const Value& one : list.items()) {
    v.meter.steps(1);
    const Value tested = by_attribute ? attribute_of(v, one, attribute_name) : one;
    const bool holds = test_name.empty() ? truth(tested) : test(v, test_name, tested, rest);
    if (holds == wanted) kept.add(one);
  }
  return kept.take();
}

Value mapped(Call& c) {
  Values& v = c.v;
  const Arguments& all = c.all;
  ListMade items(v);
  const bool by_attribute = all.values.empty();
  const std::string name = need_text(by_attribute ? all.get(0, "attribute") : all.values[0], "map");
  if (!by_attribute && !is_filter(name))
    throw JinjaUnsupported(c.line, cat("the filter ", shown(name)));
  const Deeper deeper(v.depth, kMostDepth);  // map('map', 'map', ...) calls itself
  v.meter.items(all.values.size());
  const Held held(v.meter, 2 * all.values.size() * sizeof(Value));
  Arguments rest = all;
  if (!by_attribute) rest.values.erase(rest.values.begin());
  const Value list = v.iterate(c.value);
  for (const Value& one : list.items()) {
    v.meter.steps(1);
    if (!by_attribute) {
      items.add(filter(v, name, one, rest, c.line));
      continue;
    }
    Value found = attribute_of(v, one, name);
    if (found.is(K::kUndefined) && all.has(1, "default")) found = all.get(1, "default");
    items.add(std::move(found));
  }
  return items.take();
}

Value json(Call& c) {
  const Arguments& all = c.all;
  JsonStyle style;
  if (const Value ascii = all.get(SIZE_MAX, "ensure_ascii"); truth(ascii)) style.ascii = true;
  if (const Value sorted = all.get(SIZE_MAX, "sort_keys"); truth(sorted)) style.sorted = true;
  // transformers has tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
  if (all.values.size() > 1) refuse("tojson expected its settings by name");
  const Value indent = all.get(0, "indent");
  if (indent.is(K::kInteger))
    style.indent = static_cast<int>(std::clamp<int64_t>(indent.integer, 0, 64));
  if (const Value pair = all.get(SIZE_MAX, "separators");
      pair.is_list() && pair.items().size() == 2) {
    style.between = need_text(pair.items()[0], "separators");
    style.behind_key = need_text(pair.items()[1], "separators");
  }
  to_json(c.value, style, c.out);
  return c.v.taken(c.out);
}

int64_t whole(Values& v, const Value& value, int64_t otherwise) {
  if (value.is(K::kFloat)) {
    return std::abs(value.number) < 9e18 ? static_cast<int64_t>(value.number) : otherwise;
  }
  if (value.is_number()) return value.integer;
  if (!value.is(K::kString)) return otherwise;
  v.meter.bytes(2 * value.text().size());
  const std::string_view text = strip(value.text(), {}, true, true);
  if (const auto number = number_in<int64_t>(text)) return *number;
  const auto fraction = number_in<double>(text);
  return fraction && std::abs(*fraction) < 9e18 ? static_cast<int64_t>(*fraction) : otherwise;
}

Value length(Call& c) {
  const Value& value = c.value;
  size_t size = 0;
  if (value.is(K::kString)) {
    size = c.v.characters_of(value);
  } else if (value.is_list()) {
    size = value.items().size();
  } else if (value.is(K::kMap)) {
    size = value.members().size();
  } else if (!value.is(K::kUndefined)) {
    refuse(cat("object of type '", type_name(value), "' has no len()"));
  }
  return integer(static_cast<int64_t>(size));
}

Value lowered(Values& v, const Value& value) {
  TextMade out(v.meter);
  lower(value.text(), out);
  return v.taken(out);
}

Value sorted(Call& c) {
  Values& v = c.v;
  const Arguments& all = c.all;
  const bool map = c.name == "dictsort";
  if (map && !c.value.is(K::kMap)) refuse("dictsort expected a mapping");
  const Value list = map ? v.map_method(c.value, "items", {}) : v.iterate(c.value);
  const std::vector<Value>& items = list.items();
  const Value by = all.get(SIZE_MAX, "attribute");
  const bool cased = truth(all.get(SIZE_MAX, "case_sensitive"));
  using Keyed = std::pair<Value, const Value*>;
  const Held held(v.meter, 2 * items.size() * sizeof(Keyed));  // sorting takes half as much again
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  for (const Value& one : items) {
    Value key = map ? one.items()[0] : by.is(K::kString) ? attribute_of(v, one, by.text()) : one;
    if (!cased && key.is(K::kString)) key = lowered(v, key);
    keyed.emplace_back(std::move(key), &one);
  }
  sort_stably(keyed, [&](auto& a, auto& b) { return v.ordered(a.first, b.first, "<"); });
  if (truth(all.get(SIZE_MAX, "reverse"))) std::ranges::reverse(keyed);
  ListMade out(v);
  for (const Keyed& one : keyed) out.add(*one.second);
  return out.take();
}

Value indented(Call& c) {
  const Value width = c.all.get(0, "width");
  const int64_t count =
      width.is(K::kString) ? 0 : std::clamp<int64_t>(whole(c.v, width, 4), 0, 1024);
  const std::string spaces(static_cast<size_t>(count), ' ');
  const std::string_view pad = width.is(K::kString) ? width.text() : spaces;
  const bool first = truth(c.all.get(1, "first")), blank = truth(c.all.get(2, "blank"));
  std::string_view rest = c.text();
  for (bool begins = true;; begins = false) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (begins ? first : blank || !line.empty()) c.out.add(pad);
    c.out.add(line);
    if (end == rest.npos) return c.v.taken(c.out);
    c.out.add('\n');
    rest.remove_prefix(end + 1);
  }
}

// Returns a new list.
Value listed(Call& c) {
  const Value from = c.v.iterate(c.value);
  ListMade list(c.v);
  for (const Value& one : from.items()) list.add(one);
  return list.take();
}

Value trimmed(Call& c) {
  const Value set = c.all.get(0, "chars");
  const std::string_view these = set.is(K::kString) ? set.text() : std::string_view();
  const std::string_view whole = c.text();
  c.v.meter.bytes(whole.size() * (1 + these.size()));
  return c.v.text_of(strip(whole, these, true, true));
}

Value defaulted(Call& c) {
  const bool replaced =
      c.value.is(K::kUndefined) || (truth(c.all.get(1, "boolean")) && !truth(c.value));
  if (!replaced) return c.value;
  return c.all.has(0, "default_value") ? c.all.get(0, "default_value") : string("");
}

template <void (*kMake)(std::string_view, TextMade&)>
Value cased(Call& c) {
  kMake(c.text(), c.out);
  return c.v.taken(c.out);
}

Value joined(Call& c) {
  const Value by = c.all.get(1, "attribute"), between = c.all.get(0, "d");
  return join(c.v, c.value, str(between, c.scratch), by.is(K::kString) ? by.text() : "");
}

Value first_or_last(Call& c) {
  const Value list = c.v.iterate(c.value);
  if (list.items().empty()) return c.v.undefined(cat("no ", c.name, " item"));
  return c.name == "first" ? list.items().front() : list.items().back();
}

Value replaced(Call& c) {
  const Value from = c.all.get(0, "old"), to = c.all.get(1, "new");
  TextMade other(c.v.meter);
  return replace(c.v, c.text(), str(from, c.out), str(to, other), c.all.get(2, "count"));
}

Value pairs(Call& c) {
  if (c.value.is(K::kUndefined)) return c.v.iterate(c.value);
  if (!c.value.is(K::kMap)) refuse("Can only get item pairs from a mapping.");
  return c.v.map_method(c.value, "items", {});
}

Value fraction(Call& c) {
  double number = c.value.is_number() ? c.value.as_double() : 0;
  c.v.meter.bytes(c.value.text().size());
  const std::string_view digits = strip(c.value.text(), {}, true, true);
  parse_real(digits.data(), digits.data() + digits.size(), number);
  return floating(number);
}

Value absolute(Call& c) {
  if (!c.value.is_number()) refuse("abs expected a number");
  return c.value.as_double() < 0 ? signed_number(c.value, true) : c.value;
}

Value without_repeats(Call& c) {
  ListMade kept(c.v), keys(c.v);
  const Value list = c.v.iterate(c.value);
  for (const Value& one : list.items()) {
    const Value key = one.is(K::kString) ? lowered(c.v, one) : one;
    if (c.v.contains(keys.value(), key)) continue;
    keys.add(key);
    kept.add(one);
  }
  return kept.take();
}

Value reversed(Call& c) {
  if (c.value.is(K::kString)) throw JinjaUnsupported(c.line, "the filter 'reverse' of a string");
  Value made = listed(c);
  std::ranges::reverse(made.box->items);
  return made;
}

Value total(Call& c) {
  Value total = integer(0);
  const Value list = c.v.iterate(c.value);
  for (const Value& one : list.items()) total = c.v.binary("+", total, one);
  return total;
}

Value extreme(Call& c) {
  const Value list = c.v.iterate(c.value);
  if (list.items().empty()) return c.v.undefined(c.name);
  const Value* best = &list.items()[0];
  for (const Value& one : list.items()) {
    if (c.v.ordered(one, *best, c.name == "min" ? "<" : ">")) best = &one;
  }
  return *best;
}

Value escaped(Call& c) {
  constexpr std::string_view kMarks = "&<>\"'";
  constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
  for (const char mark : c.text()) {
    const size_t which = kMarks.find(mark);
    which == kMarks.npos ? c.out.add(mark) : c.out.add(kNames[which]);
  }
  return c.v.taken(c.out);
}

Value as_text(Call& c) { return c.v.text_of(c.text()); }

Value as_whole(Call& c) {
  return integer(whole(c.v, c.value, whole(c.v, c.all.get(0, "default"), 0)));
}

constexpr struct {
  std::string_view names[9];
  Value (*run)(Call&);
} kFilters[] = {{{"abs"}, absolute},
                {{"capitalize"}, cased<capitalized>},
                {{"count", "length"}, length},
                {{"d", "default"}, defaulted},
                {{"dictsort", "sort"}, sorted},
                {{"e", "escape"}, escaped},
                {{"first", "last"}, first_or_last},
                {{"float"}, fraction},
                {{"indent"}, indented},
                {{"int"}, as_whole},
                {{"items"}, pairs},
                {{"join"}, joined},
                {{"list"}, listed},
                {{"lower"}, cased<lower>},
                {{"map"}, mapped},
                {{"max", "min"}, extreme},
                {{"reject", "rejectattr", "select", "selectattr"}, chosen},
                {{"replace"}, replaced},
                {{"reverse"}, reversed},
                {{"safe", "string"}, as_text},
                {{"sum"}, total},
                {{"title"}, cased<title>},
                {{"tojson"}, json},
                {{"trim"}, trimmed},
                {{"unique"}, without_repeats},
                {{"upper"}, cased<upper>}};

struct Tested {
  Values& v;
  std::string_view name;
  const Value& value;
  const std::vector<Value>& all;

  const Value& other() const {
    if (all.empty()) refuse(cat("the test ", shown(name), " expected a value"));
    return all[0];
  }
  int64_t whole() const {
    if (!value.is(K::kInteger)) refuse(cat("the test ", shown(name), " expected an integer"));
    return value.integer;
  }
};

template <K kKind>
bool is_kind(const Tested& t) {
  return t.value.is(kKind);
}
template <bool kWanted>
bool is_boolean(const Tested& t) {
  return t.value.is(K::kBoolean) && (t.value.integer != 0) == kWanted;
}
bool is_sequence(const Tested& t) {
  return t.value.is(K::kString) || t.value.is_list() || t.value.is(K::kMap) ||
         t.value.is(K::kUndefined);
}
template <void (*kMake)(std::string_view, TextMade&)>
bool is_cased(const Tested& t) {
  TextMade scratch(t.v.meter), out(t.v.meter);
  const std::string_view text = str(t.value, scratch);
  kMake(text, out);
  return text == out.view();
}
bool is_callable(const Tested& t) {
  return t.value.is(K::kMacro) || t.value.is(K::kFunction) || t.value.is(K::kMethod);
}
bool is_iterable(const Tested& t) { return is_sequence(t) || t.value.is(K::kLoop); }
bool is_defined(const Tested& t) { return !t.value.is(K::kUndefined); }
bool is_number(const Tested& t) { return t.value.is_number(); }
bool is_odd(const Tested& t) { return t.whole() % 2 != 0; }
bool is_even(const Tested& t) { return t.whole() % 2 == 0; }
bool is_divisible(const Tested& t) {
  t.whole();
  return !truth(arithmetic("%", t.value, t.other()));
}
bool is_same(const Tested& t) {
  return t.value.kind == t.other().kind && equal(t.value, t.other(), t.v.meter);
}
bool compares(const Tested& t) {
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"in", "in"},
      {"lt", "<"},  {"le", "<="}, {"gt", ">"},       {"ge", ">="}};
  const auto sign = std::ranges::find(kSigns, t.name, [](const auto& row) { return row.first; });
  return t.v.holds(t.value, sign->second, t.other());
}

constexpr struct {
  std::string_view names[9];
  bool (*run)(const Tested&);
} kTests[] = {{{"==", "eq", "equalto", "ge", "gt", "in", "le", "lt", "ne"}, compares},
              {{"boolean"}, is_kind<K::kBoolean>},
              {{"callable"}, is_callable},
              {{"defined"}, is_defined},
              {{"divisibleby"}, is_divisible},
              {{"even"}, is_even},
              {{"false"}, is_boolean<false>},
              {{"float"}, is_kind<K::kFloat>},
              {{"integer"}, is_kind<K::kInteger>},
              {{"iterable"}, is_iterable},
              {{"lower"}, is_cased<lower>},
              {{"mapping"}, is_kind<K::kMap>},
              {{"none"}, is_kind<K::kNone>},
              {{"number"}, is_number},
              {{"odd"}, is_odd},
              {{"sameas"}, is_same},
              {{"sequence"}, is_sequence},
              {{"string"}, is_kind<K::kString>},
              {{"true"}, is_boolean<true>},
              {{"undefined"}, is_kind<K::kUndefined>},
              {{"upper"}, is_cased<upper>}};

}  // namespace

bool is_filter(std::string_view name) { return row_of(kFilters, name) != nullptr; }
bool is_test(std::string_view name) { return row_of(kTests, name) != nullptr; }

Value filter(Values& v, std::string_view name, const Value& value, const Arguments& all, int line) {
  v.meter.steps(1);
  Call call{v, name, value, all, line};
  return row_of(kFilters, name)->run(call);
}

bool test(Values& v, std::string_view name, const Value& value, const std::vector<Value>& all) {
  v.meter.steps(1);
  return row_of(kTests, name)->run({v, name, value, all});
}

Value join(Values& v, const Value& value, std::string_view between,
           const std::string& attribute_name) {
  TextMade out(v.meter);
  const Value list = v.iterate(value);
  for (const Value& one : list.items()) {
    if (&one != &list.items().front()) out.add(between);
    TextMade scratch(v.meter);
    const Value part = attribute_name.empty() ? one : attribute_of(v, one, attribute_name);
    out.add(str(part, scratch));
  }
  return v.taken(out);
}

}  // namespace split::jinja
