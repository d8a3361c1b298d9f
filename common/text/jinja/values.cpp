#include "text/jinja/values.h"

#include <cmath>

#include "text/utf8.h"

namespace split::jinja {

using K = Value::Kind;

namespace {

constexpr int kMostNested = 100;  // nesting of values

// Puts values into a list, tuple or map, which then may not be loops, whose state changes.
void put_into(Box& box, const Value& value) {
  const bool of_loop = value.is(K::kMethod) && value.items()[0].is(K::kLoop);
  if (value.is(K::kNamespace) || value.is(K::kLoop) || of_loop) {
    refuse(cat("a ", type_name(of_loop ? value.items()[0] : value),
               " in another value is not supported"));
  }
  const bool holds = value.is_list() || value.is(K::kMap) || value.is(K::kMethod);
  if (holds && value.box != nullptr) box.depth = std::max(box.depth, value.box->depth + 1);
  if (box.depth > kMostNested) refuse("values nest too deeply");
}

template <typename Each>
static void each_of_slice(int64_t begin, int64_t end, int64_t step, int64_t size,
                          const Each& each) {
  const int64_t stride = std::clamp<int64_t>(step, -size - 1, size + 1);
  for (int64_t at = begin; stride > 0 ? at < end : at > end; at += stride) {
    each(static_cast<size_t>(at));
  }
}

Value slice_of_text(Values& v, std::string_view text, int64_t begin, int64_t end, int64_t step,
                    size_t count) {
  if (step == 1) {
    const auto first = static_cast<size_t>(begin), last = static_cast<size_t>(std::max(begin, end));
    text.remove_prefix(bytes_of_characters(text, first));
    return v.text_of(text.substr(0, bytes_of_characters(text, last - first)));
  }
  const Held held(v.meter, (count + 1) * sizeof(size_t));
  const std::vector<size_t> starts = starts_of_characters(text);
  TextMade out(v.meter);
  each_of_slice(begin, end, step, static_cast<int64_t>(count),
                [&](size_t at) { out.add(text.substr(starts[at], starts[at + 1] - starts[at])); });
  return v.taken(out);
}

}  // namespace

void refuse(const std::string& what) { throw Error(ErrorKind::kInput, what); }
void Deeper::refuse_depth() { refuse("the template nests too deeply"); }

Value Arguments::get(size_t at, std::string_view name) const {
  if (at < values.size()) return values[at];
  const auto found = std::ranges::find(named, name, &Member::first);
  return found == named.end() ? jinja::undefined(std::string(name)) : found->second;
}

void ListMade::add(Value value) {
  Box& box = *list_.box;
  put_into(box, value);
  meter_.items(1);
  meter_.grow(box.items, box.held);
  box.items.push_back(std::move(value));
}

Value Values::with_box(K kind) {
  constexpr size_t kBox = sizeof(Box) + 32;  // bytes, with its allocation
  meter.hold(kBox);
  Value value(kind);
  value.box = std::make_shared<Box>();
  value.box->meter = &meter;
  value.box->held = kBox;
  return value;
}

Value Values::taken(TextMade& made) {
  Value value = with_box(K::kString);
  auto [text, held] = made.take();
  value.box->text = std::move(text);
  value.box->held += held;
  return value;
}

Value Values::text_of(std::string_view text) {
  TextMade made(meter);
  made.add(text);
  return taken(made);
}

Value Values::undefined(std::string_view name) {
  Value value = with_box(K::kUndefined);
  value.box->text = name.substr(0, 80);
  return value;
}

Value Values::list_of(std::initializer_list<Value> items, K kind) {
  ListMade list(*this, kind);
  for (const Value& item : items) list.add(item);
  return list.take();
}

void Values::add_member(Box& box, std::string key, Value value) {
  put_into(box, value);
  meter.items(1);
  meter.grow(box.members, box.held);
  const size_t bytes = key.size() < sizeof(std::string) / 2 ? 0 : key.size() + 1;
  meter.hold(bytes);
  box.held += bytes;
  box.members.emplace_back(std::move(key), std::move(value));
}

Value Values::map_of(const std::vector<Member>& members) {
  Value map = with_box(K::kMap);
  for (const auto& [key, value] : members) add_member(*map.box, key, value);
  return map;
}

Member* Values::find(std::vector<Member>& members, std::string_view key) {
  meter.bytes(members.size());
  for (Member& one : members) {
    if (one.first.size() != key.size()) continue;
    meter.bytes(key.size());
    if (one.first == key) return &one;
  }
  return nullptr;
}

void Values::set_member(Box& box, const std::string& key, Value value) {
  put_into(box, value);
  Member* const found = find(box.members, key);
  meter.bytes(key.size());
  found == nullptr ? add_member(box, key, std::move(value))
                   : void(found->second = std::move(value));
}

Value Values::of_json(Json json) {
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

Value Values::method(const Value& self, const std::string& name) {
  Value made = with_box(K::kMethod);
  made.box->text = name;
  made.box->depth = self.box == nullptr ? 1 : self.box->depth + 1;
  made.box->items.push_back(self);
  return made;
}

size_t Values::find(std::string_view text, std::string_view part, size_t from, bool last) {
  if (part.size() > text.size()) return text.npos;
  if (part.empty()) return last ? text.size() : from <= text.size() ? from : text.npos;
  const size_t end = text.size() - part.size();  // its last possible begin
  for (size_t at = last ? end : from;;) {
    const size_t next = last ? text.rfind(part[0], at) : text.find(part[0], at);
    const size_t seen = next == text.npos ? last ? 0 : text.size() : next;
    meter.bytes(last ? at - seen : seen - at);
    if (next == text.npos || next > end) return text.npos;
    const auto same =
        std::mismatch(part.begin(), part.end(), text.begin() + static_cast<ptrdiff_t>(next)).first;
    meter.bytes(4 + static_cast<size_t>(same - part.begin()));
    if (same == part.end()) return next;
    if (last && next == 0) return text.npos;
    at = last ? next - 1 : next + 1;
  }
}

Value Values::member(const Value& map, std::string_view key) {
  const Member* const found = find(map.box->members, key);
  return found == nullptr ? undefined(key) : found->second;
}

Value Values::item(const Value& value, const Value& key) {
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
  TextMade scratch(meter);
  return undefined(str(key, scratch).substr(0, 64));
}

size_t Values::characters_of(const Value& text) {
  meter.bytes(text.text().size());
  return characters(text.text());
}

Value Values::slice(const Value& value, const std::array<std::optional<int64_t>, 3>& parts) {
  const bool list = value.is_list();
  if (!list && !value.is(K::kString)) {
    expect_defined(value);
    refuse(cat("'", type_name(value), "' object is not subscriptable"));
  }
  const size_t count = list ? value.items().size() : characters_of(value);
  const auto size = static_cast<int64_t>(count);
  const int64_t step = parts[2].value_or(1);
  if (step == 0) refuse("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 && *at >= -size ? *at + size : *at < 0 ? low : *at, low, high);
  };
  const int64_t begin = bound(parts[0], step > 0 ? low : high);
  const int64_t end = bound(parts[1], step > 0 ? high : low);
  if (!list) return slice_of_text(*this, value.text(), begin, end, step, count);
  ListMade items(*this, value.kind);
  each_of_slice(begin, end, step, size, [&](size_t at) { items.add(value.items()[at]); });
  return items.take();
}

Value Values::range(const std::vector<Value>& arguments) {
  int64_t begin = 0, end = 0, step = 1;
  for (const Value& value : arguments) {
    if (!value.is(K::kInteger)) refuse("range expected integers");
  }
  if (arguments.empty() || arguments.size() > 3) refuse("range expected 1 to 3 arguments");
  arguments.size() == 1 ? end = arguments[0].integer
                        : (begin = arguments[0].integer, end = arguments[1].integer);
  if (arguments.size() == 3) step = arguments[2].integer;
  if (step == 0) refuse("range() arg 3 must not be zero");
  ListMade items(*this);
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    meter.steps(1);
    items.add(integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return items.take();
}

Value Values::iterate(const Value& value) {
  if (value.is_list()) return value;
  ListMade list(*this);
  if (value.is(K::kMap)) {
    for (const auto& member : value.members()) {
      meter.steps(1);
      list.add(text_of(member.first));
    }
  } else if (value.is(K::kString)) {
    for (std::string_view rest = value.text(); !rest.empty();) {
      const size_t length = bytes_of_characters(rest, 1);
      meter.steps(1);
      list.add(text_of(rest.substr(0, length)));
      rest.remove_prefix(length);
    }
  } else if (!value.is(K::kUndefined)) {
    refuse(cat("'", type_name(value), "' object is not iterable"));
  }
  return list.take();
}

Value Values::map_method(const Value& map, std::string_view name, const Arguments& all) {
  if (name == "get") {
    const Value key = all.get(0, "key");
    Value found = key.is(K::kString) ? member(map, key.text()) : undefined("");
    if (!found.is(K::kUndefined)) return found;
    return all.has(1, "default") ? all.get(1, "default") : none();
  }
  ListMade items(*this);
  for (const auto& [key, value] : map.members()) {
    meter.steps(1);
    items.add(name == "keys"     ? text_of(key)
              : name == "values" ? value
                                 : list_of({text_of(key), value}, K::kTuple));
  }
  return items.take();
}

bool Values::contains(const Value& whole, const Value& part) {
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
                             [&](const Value& one) { return equal(one, part, meter); });
}

bool Values::ordered(const Value& a, const Value& b, std::string_view sign) {
  meter.items(1);
  int order;
  if (a.is_number() && b.is_number()) {
    const double x = a.as_double(), y = b.as_double();
    if (std::isnan(x) || std::isnan(y)) return false;
    const bool whole = !a.is(K::kFloat) && !b.is(K::kFloat);
    const bool less = whole ? a.integer < b.integer : x < y;
    const bool more = whole ? a.integer > b.integer : x > y;
    order = less ? -1 : more ? 1 : 0;
  } else if (a.is(K::kString) && b.is(K::kString)) {
    meter.bytes(std::min(a.text().size(), b.text().size()));
    order = a.text().compare(b.text());
  } else {
    refuse(cat("'", sign, "' not supported between instances of '", type_name(a), "' and '",
               type_name(b), "'"));
  }
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

bool Values::holds(const Value& left, std::string_view sign, const Value& right) {
  if (sign == "==" || sign == "!=") return equal(left, right, meter) == (sign == "==");
  if (sign == "in" || sign == "not in") return contains(right, left) == (sign == "in");
  return ordered(left, right, sign);
}

Value Values::binary(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "~" || (sign == "+" && a.is(K::kString) && b.is(K::kString))) {
    TextMade out(meter), scratch(meter);
    out.add(str(a, scratch));
    TextMade other(meter);
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
    TextMade out(meter);
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

Value arithmetic(std::string_view sign, const Value& a, const Value& b) {
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
  __extension__ using Wide = __int128;  // holds every result
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

Value signed_number(const Value& value, bool minus) {
  if (!value.is_number()) {
    refuse(cat("bad operand type for unary ", minus ? "-" : "+", ": '", type_name(value), "'"));
  }
  if (value.is(K::kFloat)) return floating(minus ? -value.number : value.number);
  if (minus && value.integer == INT64_MIN) refuse("a number too large");
  return integer(minus ? -value.integer : value.integer);
}

void expect_defined(const Value& value) {
  if (value.is(K::kUndefined)) refuse(cat(shown(value.text()), " is undefined"));
}

const std::string& need_text(const Value& value, std::string_view what) {
  if (!value.is(K::kString)) refuse(cat(what, " expected a string, got ", type_name(value)));
  return value.text();
}

}  // namespace split::jinja
