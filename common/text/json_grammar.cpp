#include "text/json_grammar.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"

namespace split {
namespace {

using Sequence = Grammar::Sequence;

constexpr int64_t kMostItems = 256;        // minItems and maxItems
constexpr int64_t kMostLength = 1024;      // minLength and maxLength
constexpr size_t kMostAlternatives = 512;  // of enums, anyOfs and properties of one schema
constexpr int kMostReferences = 16;        // one within the other
constexpr int kMostDigits = 15;            // that a double holds
constexpr int kMostExponent = 2;           // digits

[[noreturn]] void refuse_schema(std::string_view what) {
  throw Error(ErrorKind::kInput, cat("'response_format': the schema's ", what), "response_format");
}

ByteSet range(int low, int high) {
  ByteSet set;
  for (int byte = low; byte <= high; ++byte) set.set(static_cast<size_t>(byte));
  return set;
}

ByteSet any_of(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<uint8_t>(c));
  return set;
}

bool is_any(std::string_view key, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, key) != names.end();
}

// Words for people, which bound nothing.
bool is_remark(std::string_view key) {
  return is_any(key, {"title", "description", "default", "examples", "deprecated", "readOnly",
                      "writeOnly", "$comment", "$schema", "$id", "$defs", "definitions"});
}

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

class Builder {
 public:
  Builder() : text_(grammar_.add_rule()) {}

  Grammar object() {
    grammar_.add(text_, {any_object()});
    return std::move(grammar_);
  }
  Grammar schema(const Json& schema) {
    root_ = &schema;
    grammar_.add(text_, {value(schema)});
    return std::move(grammar_);
  }

 private:
  using Symbol = Grammar::Symbol;

  static Sequence join(std::initializer_list<Sequence> parts) {
    Sequence all;
    for (const Sequence& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  Symbol either(const std::vector<Sequence>& alternatives) {
    const uint32_t rule = grammar_.add_rule();
    for (const Sequence& one : alternatives) grammar_.add(rule, one);
    return Grammar::rule(rule);
  }
  Sequence lit(std::string_view text) { return grammar_.literal(text); }
  // A rule that is made once.
  template <typename Make>
  Symbol once(const char* name, const Make& make, bool nests = false) {
    const auto at = known_.find(name);
    if (at != known_.end()) return Grammar::rule(at->second);
    const uint32_t rule = known_[name] = grammar_.add_rule(nests);
    make(rule);
    return Grammar::rule(rule);
  }
  // One thing any number of times.
  Symbol many(const Sequence& one) {
    const uint32_t rule = grammar_.add_rule();
    grammar_.add(rule, {});
    grammar_.add(rule, join({one, {Grammar::rule(rule)}}));
    return Grammar::rule(rule);
  }
  // At most so many times.
  Symbol at_most(const Symbol& one, int count) {
    Symbol rest = either({{}});
    for (int i = 0; i < count; ++i) rest = either({{}, {one, rest}});
    return rest;
  }

  Symbol space() {
    return once("space", [&](uint32_t rule) {
      grammar_.add(rule, {});
      grammar_.add(rule, lit(" "));
    });
  }
  Symbol character();
  Symbol string(int64_t least, std::optional<int64_t> most);
  Symbol number(bool whole);
  Symbol any_value();
  Symbol any_object() {
    return once(
        "object", [&](uint32_t rule) { members(rule, any_value()); }, true);
  }
  void members(uint32_t rule, Symbol value);
  Sequence array(Symbol item, int64_t least, std::optional<int64_t> most);
  Symbol properties(const Json& schema);
  Symbol value(const Json& schema);
  Symbol listed(const Json& schema);
  Symbol any_of_them(const Json& schema);
  Symbol of_type(const Json& schema, std::string_view type);
  Symbol reference(const std::string& path);
  static std::pair<int64_t, std::optional<int64_t>> bounds(const Json& schema, const char* least,
                                                           const char* most, int64_t limit);
  void count(size_t alternatives) {
    if ((alternatives_ += alternatives) > kMostAlternatives) {
      refuse_schema(
          cat("properties and alternatives: expected at most ", kMostAlternatives, " in all"));
    }
  }

  Grammar grammar_;
  const uint32_t text_;
  const Json* root_ = nullptr;
  std::map<std::string, uint32_t, std::less<>> known_;
  size_t alternatives_ = 0;
  int references_ = 0;  // around this place
};

// One character of a string, valid UTF-8 or an escape.
Builder::Symbol Builder::character() {
  return once("character", [&](uint32_t rule) {
    ByteSet plain = range(0x20, 0x7e);
    plain &= ~any_of("\"\\");
    const auto set = [&](int low, int high) { return grammar_.bytes(range(low, high)); };
    const Symbol tail = set(0x80, 0xbf);
    const Symbol hex = grammar_.bytes(any_of("0123456789abcdefABCDEF"));
    grammar_.add(rule, {grammar_.bytes(plain)});
    grammar_.add(rule, join({lit("\\"), {grammar_.bytes(any_of("\"\\/bfnrt"))}}));
    // No surrogates: \ud800 to \udfff.
    const Symbol no_d = grammar_.bytes(any_of("0123456789abcefABCEF"));
    grammar_.add(rule, join({lit("\\u"), {no_d, hex, hex, hex}}));
    grammar_.add(rule, {set(0xc2, 0xdf), tail});
    grammar_.add(rule, {set(0xe0, 0xe0), set(0xa0, 0xbf), tail});
    grammar_.add(rule, {set(0xe1, 0xec), tail, tail});
    grammar_.add(rule, {set(0xed, 0xed), set(0x80, 0x9f), tail});
    grammar_.add(rule, {set(0xee, 0xef), tail, tail});
    grammar_.add(rule, {set(0xf0, 0xf0), set(0x90, 0xbf), tail, tail});
    grammar_.add(rule, {set(0xf1, 0xf3), tail, tail, tail});
    grammar_.add(rule, {set(0xf4, 0xf4), set(0x80, 0x8f), tail, tail});
  });
}

Builder::Symbol Builder::string(int64_t least, std::optional<int64_t> most) {
  const auto make = [&](uint32_t rule) {
    const Symbol one = character();
    // From the end: nothing more, or one more and then what may follow it.
    Symbol rest = most ? either({lit("\"")}) : either({join({{many({one})}, lit("\"")})});
    for (int64_t at = most.value_or(least); at > 0; --at) {
      std::vector<Sequence> alternatives = {{one, rest}};
      if (at > least) alternatives.push_back(lit("\""));
      rest = either(alternatives);
    }
    grammar_.add(rule, join({lit("\""), {rest}}));
  };
  if (least == 0 && !most) return once("string", make);
  const uint32_t rule = grammar_.add_rule();
  make(rule);
  return Grammar::rule(rule);
}

Builder::Symbol Builder::number(bool whole) {
  return once(whole ? "integer" : "number", [&](uint32_t rule) {
    const Symbol digit = grammar_.bytes(range('0', '9'));
    const Symbol sign = either({{}, lit("-")});
    const Symbol more = at_most(digit, kMostDigits - 1);
    const Symbol front = either({lit("0"), {grammar_.bytes(range('1', '9')), more}});
    if (whole) return grammar_.add(rule, {sign, front});
    const Symbol fraction = either({{}, join({lit("."), {digit, more}})});
    const Symbol power =
        either({{},
                {grammar_.bytes(any_of("eE")), either({{}, {grammar_.bytes(any_of("+-"))}}), digit,
                 at_most(digit, kMostExponent - 1)}});
    grammar_.add(rule, {sign, front, fraction, power});
  });
}

// Members of any name, each with such a value. A name may come twice: readers take the last one.
void Builder::members(uint32_t rule, Symbol value) {
  const Sequence member = join({{string(0, {})}, lit(":"), {space(), value}});
  const Symbol more = many(join({lit(","), {space()}, member}));
  grammar_.add(rule, lit("{}"));
  grammar_.add(rule, join({lit("{"), member, {more}, lit("}")}));
}

Builder::Symbol Builder::any_value() {
  return once("value", [&](uint32_t rule) {
    grammar_.add(rule, {string(0, {})});
    grammar_.add(rule, {number(false)});
    for (const char* word : {"true", "false", "null"}) grammar_.add(rule, lit(word));
    grammar_.add(rule, {any_object()});
    grammar_.add(
        rule,
        {once(
            "array", [&](uint32_t list) { grammar_.add(list, array(Grammar::rule(rule), 0, {})); },
            true)});
  });
}

Sequence Builder::array(Symbol item, int64_t least, std::optional<int64_t> most) {
  const Sequence next = join({lit(","), {space(), item}});
  Symbol rest = most ? either({lit("]")}) : either({join({{many(next)}, lit("]")})});
  for (int64_t at = most.value_or(std::max<int64_t>(least, 1)); at > 0; --at) {
    std::vector<Sequence> alternatives = {join({at == 1 ? Sequence{item} : next, {rest}})};
    if (at > least) alternatives.push_back(lit("]"));
    rest = either(alternatives);
  }
  return join({lit("["), {rest}});
}

std::pair<int64_t, std::optional<int64_t>> Builder::bounds(const Json& schema, const char* least,
                                                           const char* most, int64_t limit) {
  const auto read = [&](const char* key) -> std::optional<int64_t> {
    const Json* const value = schema.find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || value->get<double>() < 0 ||
        value->get<double>() > static_cast<double>(limit)) {
      refuse_schema(cat("'", key, "': expected a whole number in 0..", limit));
    }
    return value->get<int64_t>();
  };
  const int64_t low = read(least).value_or(0);
  const std::optional<int64_t> high = read(most);
  if (high && *high < low) refuse_schema(cat("'", most, "' is below '", least, "'"));
  return {low, high};
}

Builder::Symbol Builder::reference(const std::string& path) {
  const Json* found = root_;
  if (!path.starts_with('#')) refuse_schema(cat("'$ref': expected #/..., got ", shown(path)));
  for (size_t at = 1; at < path.size() && found != nullptr;) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    found = found->find(path.substr(at + 1, end - at - 1));
    at = end;
  }
  if (found == nullptr) refuse_schema(cat("'$ref': nothing is at ", shown(path)));
  if (++references_ > kMostReferences)
    refuse_schema(cat("'$ref': ", shown(path), " leads to itself"));
  const Symbol symbol = value(*found);
  --references_;
  return symbol;
}

// An object whose members are these, in their order; what is not required may be left out. Members
// beyond them are never written, whatever additionalProperties allows.
Builder::Symbol Builder::properties(const Json& schema) {
  const Json none = Json::object();
  const Json *named = schema.find("properties"), *required = schema.find("required");
  const Json* const extra = schema.find("additionalProperties");
  if (extra != nullptr && !extra->is_boolean() && !extra->is_object()) {
    refuse_schema("'additionalProperties': expected true, false or a schema");
  }
  if (named == nullptr) named = &none;
  if (!named->is_object()) refuse_schema("'properties': expected an object");
  count(named->size());
  std::vector<std::string_view> needed;
  if (required != nullptr) {
    if (!required->is_array() || required->size() > kMostAlternatives) {
      refuse_schema("'required': expected a list of names");
    }
    for (const Json& name : *required) {
      if (!name.is_string() || !named->contains(name.text())) {
        refuse_schema(cat("'required' names ", name.is_string() ? shown(name.text()) : "no string",
                          ", which is no property"));
      }
      needed.push_back(name.text());
    }
  }
  if (named->empty()) {
    if (extra == nullptr || *extra == true) return any_object();
    if (*extra == false) return either({lit("{}")});
    const uint32_t rule = grammar_.add_rule();
    members(rule, value(*extra));
    return Grammar::rule(rule);
  }
  // The rest behind the properties before: as the first member, or behind others.
  Symbol first = either({lit("}")}), later = first;
  const auto& all = named->members();
  for (size_t i = all.size(); i-- > 0;) {
    const Sequence member =
        join({lit(json_quote(all[i].name) + ":"), {space(), value(all[i].value), later}});
    std::vector<Sequence> as_first = {member}, as_later = {join({lit(","), {space()}, member})};
    if (std::ranges::find(needed, all[i].name) == needed.end()) {
      as_first.push_back({first});
      as_later.push_back({later});
    }
    first = either(as_first);
    later = either(as_later);
  }
  return either({join({lit("{"), {first}})});
}

Builder::Symbol Builder::of_type(const Json& schema, std::string_view type) {
  if (type == "object") return properties(schema);
  if (type == "array") {
    const Json* const items = schema.find("items");
    const auto [least, most] = bounds(schema, "minItems", "maxItems", kMostItems);
    return either({array(items == nullptr ? any_value() : value(*items), least, most)});
  }
  if (type == "string") {
    const auto [least, most] = bounds(schema, "minLength", "maxLength", kMostLength);
    return string(least, most);
  }
  if (type == "number" || type == "integer") return number(type == "integer");
  if (type == "boolean") return either({lit("true"), lit("false")});
  if (type == "null") return either({lit("null")});
  refuse_schema(cat("'type': ", shown(type), " is none"));
}

std::vector<std::string> types_of(const Json& schema) {
  const Json* const type = schema.find("type");
  if (type == nullptr) return {};
  if (type->is_string()) return {type->text()};
  std::vector<std::string> types;
  if (type->is_array() && type->size() <= 7) {
    for (const Json& one : *type) {
      if (one.is_string()) types.push_back(one.text());
    }
  }
  if (types.empty() || types.size() != type->size())
    refuse_schema("'type': expected one or a list");
  return types;
}

// The values of enum or const that are of its types.
Builder::Symbol Builder::listed(const Json& schema) {
  const std::vector<std::string> types = types_of(schema);
  std::vector<Sequence> alternatives;
  const auto add = [&](const Json& one) {
    const auto fits = [&](const std::string& type) { return is_of_type(one, type); };
    if (types.empty() || std::ranges::any_of(types, fits)) alternatives.push_back(lit(one.dump()));
  };
  if (const Json* const fixed = schema.find("const")) {
    add(*fixed);
  } else {
    const Json& values = schema["enum"];
    if (!values.is_array()) refuse_schema("'enum': expected a list");
    count(values.size());
    for (const Json& one : values) add(one);
  }
  if (alternatives.empty()) refuse_schema("'enum' or 'const' has no value of its type");
  return either(alternatives);
}

Builder::Symbol Builder::any_of_them(const Json& schema) {
  const Json& list = schema["anyOf"];
  if (!list.is_array() || list.empty()) refuse_schema("'anyOf': expected a list of schemas");
  count(list.size());
  std::vector<Sequence> alternatives;
  for (const Json& one : list) alternatives.push_back({value(one)});
  return either(alternatives);
}

Builder::Symbol Builder::value(const Json& schema) {
  if (schema == true) return any_value();
  if (!schema.is_object()) refuse_schema("parts: expected objects");
  const char* alone = nullptr;  // it says all
  for (const char* key : {"$ref", "const", "enum", "anyOf"}) {
    if (alone == nullptr && schema.contains(key)) alone = key;
  }
  for (const auto& [key, ignored] : schema.members()) {
    const bool known =
        is_any(key, {"type", "properties", "required", "items", "minItems", "maxItems", "minLength",
                     "maxLength", "additionalProperties", "enum", "const", "anyOf", "$ref"});
    if (is_remark(key)) continue;
    if (!known) refuse_schema(cat(shown(key), " is not supported"));
    const bool types_values =
        key == "type" && is_any(alone == nullptr ? "" : alone, {"const", "enum"});
    if (alone != nullptr && key != alone && !types_values) {
      refuse_schema(cat("'", alone, "' beside ", shown(key), " is not supported"));
    }
  }
  if (alone != nullptr) {
    if (std::string_view(alone) == "anyOf") return any_of_them(schema);
    if (std::string_view(alone) != "$ref") return listed(schema);
    if (!schema["$ref"].is_string()) refuse_schema("'$ref': expected text");
    return reference(schema["$ref"].text());
  }
  std::vector<std::string> types = types_of(schema);
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return schema.contains(key); });
  };
  if (types.empty()) {
    if (has({"properties", "required", "additionalProperties"})) return properties(schema);
    if (has({"items", "minItems", "maxItems"})) return of_type(schema, "array");
    return has({"minLength", "maxLength"}) ? of_type(schema, "string") : any_value();
  }
  std::vector<Sequence> alternatives;
  for (const std::string& type : types) alternatives.push_back({of_type(schema, type)});
  return either(alternatives);
}

}  // namespace

std::string json_in_order(const Json& value) {
  std::string out;
  if (value.is_array()) {
    for (const Json& one : value) out += cat(out.empty() ? "" : ",", json_in_order(one));
    return cat("[", out, "]");
  }
  if (!value.is_object()) return value.dump();
  for (const auto& [name, one] : value.members()) {
    out += cat(out.empty() ? "" : ",", json_quote(name), ":", json_in_order(one));
  }
  return cat("{", out, "}");
}

Grammar json_object_grammar() { return Builder().object(); }
Grammar json_schema_grammar(const Json& schema) { return Builder().schema(schema); }

}  // namespace split
