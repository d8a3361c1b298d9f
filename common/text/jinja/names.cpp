// Attributes of values, and the functions that every template knows.
#include <ctime>

#include "text/jinja/values.h"

namespace split::jinja {
namespace {

using K = Value::Kind;

// Python's other methods, which are missing here.
constexpr std::string_view kOtherStringMethods[] = {
    "casefold",   "center",   "encode",    "expandtabs",   "format",  "format_map",  "isalnum",
    "isalpha",    "isascii",  "isdecimal", "isidentifier", "islower", "isprintable", "istitle",
    "isupper",    "ljust",    "maketrans", "partition",    "rfind",   "rindex",      "rjust",
    "rpartition", "swapcase", "translate", "zfill"};

Value loop_value(Values& values, const Value& self, const std::string& name) {
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
  if (name == "previtem") return loop.at > 0 ? (*loop.items)[loop.at - 1] : values.undefined(name);
  if (name == "nextitem")
    return loop.at + 1 < size ? (*loop.items)[loop.at + 1] : values.undefined(name);
  if (name == "cycle") return values.method(self, name);
  return values.undefined(name);
}

[[gnu::noinline]] std::string now(const std::string& format) {
  if (format.size() > 256) refuse("strftime_now: expected a short format");
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[4096];
  return {text, std::strftime(text, sizeof text, format.c_str(), &parts)};
}

}  // namespace

Value attribute(Values& values, const Value& value, const std::string& name, int line) {
  expect_defined(value);
  const auto refuse_method = [&](bool known, const char* whose = "") {
    if (known) throw JinjaUnsupported(line, cat("the method ", shown(name), whose));
  };
  switch (value.kind) {
    case K::kMap:
      if (is_any(name, {"items", "keys", "values", "get"})) return values.method(value, name);
      refuse_method(is_any(name, {"copy", "pop", "update", "setdefault", "clear"}));
      return values.member(value, name);
    case K::kNamespace:
      return values.member(value, name);
    case K::kString:
      if (is_string_method(name)) return values.method(value, name);
      refuse_method(is_any(name, kOtherStringMethods), " of a string");
      break;
    case K::kLoop:
      return loop_value(values, value, name);
    case K::kList:
      refuse_method(is_any(name, {"append", "extend", "insert", "index", "count", "pop"}));
      break;
    default:
      break;
  }
  return values.undefined(name);
}

Value function(Values& values, const std::string& name, const Arguments& all) {
  constexpr size_t kMostSaid = 1024;  // bytes
  TextMade scratch(values.meter);
  if (name == "raise_exception") {
    refuse(std::string(str(all.get(0, "message"), scratch).substr(0, kMostSaid)));
  }
  if (name == "strftime_now") {
    return values.text_of(now(std::string(str(all.get(0, "format"), scratch))));
  }
  if (name == "range") return values.range(all.values);
  if (name == "dict") return values.map_of(all.named);
  Value space = values.map_of(all.named);  // namespace
  if (!all.values.empty()) {
    if (!all.values[0].is(K::kMap)) refuse("namespace expected a mapping");
    for (const auto& [key, value] : all.values[0].members())
      values.set_member(*space.box, key, value);
  }
  space.kind = K::kNamespace;
  return space;
}

}  // namespace split::jinja
