// Methods of strings, by name.
#include <algorithm>

#include "text/jinja/values.h"

namespace split::jinja {
namespace {

using K = Value::Kind;

struct MethodCall {
  Values& v;
  const Value& self;
  std::string_view name;
  const Arguments& all;
  int line;
  const std::string& text = self.text();

  std::string_view argument(size_t at) const {  // into `all`
    return need_text(all.get(at, ""), cat(name, "()"));
  }
};

Value stripped(const MethodCall& c) {
  const bool given = !c.all.values.empty() && !c.all.values[0].is(K::kNone);
  const std::string_view set = given ? c.argument(0) : std::string_view();
  if (given && set.empty()) return c.self;
  c.v.meter.bytes(c.text.size() * set.size());
  return c.v.text_of(strip(c.text, set, c.name != "rstrip", c.name != "lstrip"));
}

Value begins_or_ends(const MethodCall& c) {
  const Value what = c.all.get(0, "");
  const auto holds = [&](const Value& part) {
    const std::string& one = need_text(part, c.name);
    c.v.meter.bytes(4 + std::min(one.size(), c.text.size()));
    return c.name == "startswith" ? c.text.starts_with(one) : c.text.ends_with(one);
  };
  return boolean(what.is(K::kTuple) ? std::ranges::any_of(what.items(), holds) : holds(what));
}

Value parted(const MethodCall& c) {
  Values& v = c.v;
  const bool from_right = c.name == "rsplit";
  const Value separator = c.all.get(0, "sep"), most = c.all.get(1, "maxsplit");
  int64_t left = most.is(K::kInteger) && most.integer >= 0 ? most.integer : INT64_MAX;
  ListMade parts(v);
  const auto add = [&](std::string_view part) {
    v.meter.steps(1);
    parts.add(v.text_of(part));
  };
  std::string_view rest = c.text;
  if (!separator.is(K::kString)) {
    if (from_right && left != INT64_MAX) refuse("rsplit() expected a separator");
    for (rest = strip(rest, {}, true, false); !rest.empty(); rest = strip(rest, {}, true, false)) {
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
    const size_t at = v.find(rest, by, 0, from_right);
    if (at == rest.npos) break;
    add(from_right ? rest.substr(at + by.size()) : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : rest.substr(at + by.size());
  }
  add(rest);
  Value list = parts.take();
  if (from_right) std::ranges::reverse(list.box->items);
  return list;
}

Value lines(const MethodCall& c) {
  ListMade lines(c.v);
  for (std::string_view rest = c.text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view one = rest.substr(0, end);
    if (end < rest.size() && one.ends_with('\r')) one.remove_suffix(1);
    c.v.meter.steps(1);
    lines.add(c.v.text_of(one));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines.take();
}

Value without(const MethodCall& c) {
  const std::string_view part = c.argument(0), all = c.text;
  const bool front = c.name == "removeprefix";
  if (!(front ? all.starts_with(part) : all.ends_with(part))) return c.self;
  return c.v.text_of(front ? all.substr(part.size()) : all.substr(0, all.size() - part.size()));
}

Value place_of(const MethodCall& c) {
  const size_t at = c.v.find(c.text, c.argument(0));
  if (at == c.text.npos && c.name == "index") refuse("substring not found");
  if (at == c.text.npos) return integer(-1);
  return integer(static_cast<int64_t>(characters(std::string_view(c.text).substr(0, at))));
}

Value counted(const MethodCall& c) {
  const std::string_view part = c.argument(0);
  if (part.empty()) throw JinjaUnsupported(c.line, "count() of nothing");
  int64_t count = 0;
  for (size_t at = 0; (at = c.v.find(c.text, part, at)) != c.text.npos; at += part.size()) ++count;
  return integer(count);
}

Value are_digits(const MethodCall& c) {
  const auto digit = [](char one) { return one >= '0' && one <= '9'; };
  return boolean(!c.text.empty() && std::ranges::all_of(c.text, digit));
}

Value by_filter(const MethodCall& c) { return filter(c.v, c.name, c.self, {}, c.line); }

Value is_space(const MethodCall& c) {
  return boolean(!c.text.empty() && strip(c.text, {}, true, true).empty());
}
Value joined_by(const MethodCall& c) { return join(c.v, c.all.get(0, ""), c.text, {}); }
Value replaced_in(const MethodCall& c) {
  return replace(c.v, c.text, c.argument(0), c.argument(1), c.all.get(2, "count"));
}

constexpr struct {
  std::string_view names[4];
  Value (*run)(const MethodCall&);
} kMethods[] = {{{"capitalize", "lower", "title", "upper"}, by_filter},
                {{"count"}, counted},
                {{"endswith", "startswith"}, begins_or_ends},
                {{"find", "index"}, place_of},
                {{"isdigit", "isnumeric"}, are_digits},
                {{"isspace"}, is_space},
                {{"join"}, joined_by},
                {{"lstrip", "rstrip", "strip"}, stripped},
                {{"removeprefix", "removesuffix"}, without},
                {{"replace"}, replaced_in},
                {{"rsplit", "split"}, parted},
                {{"splitlines"}, lines}};

}  // namespace

bool is_string_method(std::string_view name) { return row_of(kMethods, name) != nullptr; }

Value string_method(Values& v, const Value& self, std::string_view name, const Arguments& all,
                    int line) {
  v.meter.bytes(self.text().size());
  return row_of(kMethods, name)->run({v, self, name, all, line});
}

Value replace(Values& v, std::string_view text, std::string_view from, std::string_view to,
              const Value& count) {
  int64_t left = count.is(K::kInteger) && count.integer >= 0 ? count.integer : INT64_MAX;
  if (from.empty()) refuse("replace() expected something to replace");
  TextMade out(v.meter);
  for (size_t at = 0; left > 0 && (at = v.find(text, from)) != text.npos; --left) {
    out.add(text.substr(0, at));
    out.add(to);
    text.remove_prefix(at + from.size());
  }
  out.add(text);
  return v.taken(out);
}

}  // namespace split::jinja
