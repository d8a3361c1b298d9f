#include "text/json/json_grammar.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/resources/memory_budget.h"
#include "text/json/exclusive.h"
#include "text/json/in_order.h"
#include "text/json/keywords.h"
#include "text/json/rules.h"

namespace split {
namespace {

using Sequence = JsonRules::Sequence;
using Symbol = JsonRules::Symbol;

constexpr int64_t kMostItems = 256;        // minItems and maxItems, to be held
constexpr int64_t kMostLength = 1024;      // minLength and maxLength
constexpr size_t kMostAlternatives = 512;  // of enums, anyOfs and properties of one schema
constexpr size_t kMostReferences = 16;     // one within the other
constexpr size_t kMostText = 1 << 17;      // of a name or a value; a grammar has as many symbols
constexpr size_t kMostName = 32, kMostLoosened = 32;

class Builder {
 public:
  // With `loose` nothing is refused.
  Builder(JsonRules& rules, MemoryShare* memory, bool loose)
      : rules_(rules), memory_(memory), loose_(loose) {}
  Symbol schema(const Json& schema) {
    root_ = &schema;
    return value(schema);
  }
  Symbol arguments(const Json& schema);
  std::vector<std::string> loosened() const { return {loosened_.begin(), loosened_.end()}; }

 private:
  Sequence lit(std::string_view text) { return rules_.lit(text); }
  Symbol either(const std::vector<Sequence>& alternatives) { return rules_.either(alternatives); }
  Symbol values(std::span<const Json> schemas);
  Symbol array(const Json& schema);
  Symbol properties(const Json& schema);
  Symbol record(const Json& schema, const Json* extra);
  Symbol value(const Json& schema);
  Symbol held(const Json& schema);
  template <typename Make>
  Symbol or_any(const Make& make, Symbol (JsonRules::*any)());
  Symbol listed(const Json& schema);
  Symbol one_of_types(const Json& schema);
  Symbol of_type(const Json& schema, std::string_view type);
  Symbol numbers(const Json& schema, bool whole);
  Symbol reference(const std::string& path);
  std::string_view says_all(const Json& schema);
  void loosen(std::string_view key);
  std::pair<int64_t, std::optional<int64_t>> lengths(const Json& schema, const char* least,
                                                     const char* most, int64_t limit);
  std::optional<int64_t> bound(const Json& schema, bool low);
  void count(size_t alternatives) {
    if ((alternatives_ += alternatives) > kMostAlternatives) {
      refuse_schema(
          cat("properties and alternatives: expected at most ", kMostAlternatives, " in all"));
    }
  }

  JsonRules& rules_;
  MemoryShare* memory_;
  const bool loose_;
  const Json* root_ = nullptr;
  std::set<std::string, std::less<>> loosened_;
  size_t alternatives_ = 0;
  std::vector<std::string> around_ = {"#"};  // references around this place
  std::map<std::string, Symbol> referred_;
};

// Its name goes into a header and a line of log.
void Builder::loosen(std::string_view key) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '$' ||
           c == '-' || c == '_';
  };
  const bool shows = !key.empty() && key.size() <= kMostName && std::ranges::all_of(key, plain) &&
                     loosened_.size() < kMostLoosened;
  loosened_.emplace(shows ? key : "others");
}

// Lengths that cannot be held are loosened.
std::pair<int64_t, std::optional<int64_t>> Builder::lengths(const Json& schema, const char* least,
                                                            const char* most, int64_t limit) {
  const auto read = [&](const char* key) -> std::optional<int64_t> {
    const Json* const value = schema.find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (number < 0 || number != std::floor(number)) {
      refuse_schema(cat("'", key, "': expected a whole number of at least 0"));
    }
    if (number <= static_cast<double>(limit)) return static_cast<int64_t>(number);
    loosen(key);
    return std::nullopt;
  };
  const int64_t low = read(least).value_or(0);
  const std::optional<int64_t> high = read(most);
  if (high && *high < low) refuse_schema(cat("'", most, "' is below '", least, "'"));
  return {low, high};
}

// The least or the largest whole number that the schema allows; none: it has no bound there. One
// that no number of ours reaches is loosened, and one that all of ours keep is none.
std::optional<int64_t> Builder::bound(const Json& schema, bool low) {
  std::optional<int64_t> closest;
  for (const char* key :
       {low ? "minimum" : "maximum", low ? "exclusiveMinimum" : "exclusiveMaximum"}) {
    const Json* const value = schema.find(key);
    if (value == nullptr || *value == false) continue;
    constexpr auto kMost = static_cast<double>(JsonRules::kMostBound);
    const double number = value->is_boolean() ? kMost : value->get<double>();
    if (value->is_boolean() || std::abs(number) >= kMost) {  // draft 4's true bounds another's
      if (value->is_boolean() || (low ? number > 0 : number < 0)) loosen(key);
      continue;
    }
    const bool exclusive = std::string_view(key).starts_with("exclusive");
    const double inner = low ? std::ceil(number) : std::floor(number);
    int64_t whole =
        value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(inner);
    if (exclusive && inner == number) whole += low ? 1 : -1;
    if (!closest || (low ? whole > *closest : whole < *closest)) closest = whole;
  }
  return closest;
}

Symbol Builder::numbers(const Json& schema, bool whole) {
  const std::optional<int64_t> least = bound(schema, true), most = bound(schema, false);
  if (!whole) {  // of bounds of fractions the sign alone is held
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      const bool sign = std::string_view(key) == "minimum" && schema.contains(key) &&
                        schema[key].get<double>() == 0;
      if (schema.contains(key) && schema[key] != Json(false) && !sign) loosen(key);
    }
    return rules_.number(!least || *least < 0);
  }
  constexpr int64_t kMost = JsonRules::kMostInteger, kBeyond = JsonRules::kMostBound;
  int64_t low = least.value_or(-kMost), high = most.value_or(kMost);
  if (!most && low > kMost) high = kBeyond;
  if (!least && high < -kMost) low = -kBeyond;
  if (low > high) refuse_schema("bounds of an integer leave none");
  if (low <= kMost) high = std::min(high, kMost);
  if (high >= -kMost) low = std::max(low, -kMost);
  return rules_.integer(low, high);
}

// A schema that is around itself says what is in it once; further in there is any value.
Symbol Builder::reference(const std::string& path) {
  if (const auto known = referred_.find(path); known != referred_.end()) return known->second;
  if (memory_ != nullptr) memory_->take(4 * path.size());  // copies, and parts that are looked for
  if (!path.starts_with('#')) refuse_schema(cat("'$ref': expected #/..., got ", shown(path)));
  const Json* const found = find_reference(*root_, path);
  if (found == nullptr) refuse_schema(cat("'$ref': nothing is at ", shown(path)));
  const bool inside = std::ranges::find(around_, path) != around_.end();
  if (inside || around_.size() > kMostReferences) {
    loosen("$ref");
    return rules_.any_value();
  }
  around_.push_back(path);
  const Symbol symbol = value(*found);
  around_.pop_back();
  referred_.emplace(path, symbol);
  return symbol;
}

// Any members, whose names and values the schema may bound.
Symbol Builder::record(const Json& schema, const Json* extra) {
  Symbol name = rules_.string(0, {});
  if (const Json* const names = schema.find("propertyNames"); names != nullptr) {
    const Json *type = names->find("type"), *listed = names->find("enum");
    const bool text = type != nullptr ? *type == "string"
                                      : listed != nullptr && listed->is_array() &&
                                            std::ranges::all_of(*listed, &Json::is_string);
    if (text) {
      name = value(*names);
    } else {
      loosen("propertyNames");
    }
  }
  if (extra != nullptr && *extra == false) return either({lit("{}")});
  const bool any = extra == nullptr || *extra == true;
  if (any && !schema.contains("propertyNames")) return rules_.any_object();
  return rules_.object(name, any ? rules_.any_value() : value(*extra));
}

// An object whose members are these, in their order; what is not required may be left out. Members
// beyond them are never written, whatever additionalProperties allows, but for required ones.
Symbol Builder::properties(const Json& schema) {
  static const Json kNone = Json::object(), kAny = true;
  const Json *named = schema.find("properties"), *required = schema.find("required"),
             *extra = schema.find("additionalProperties");
  if (named == nullptr) named = &kNone;
  count(named->size());
  std::vector<std::pair<std::string_view, const Json*>> all;
  for (const auto& [name, one] : named->members()) all.emplace_back(name, &one);
  std::vector<std::string_view> needed;
  if (required != nullptr) {
    if (required->size() > kMostAlternatives || !std::ranges::all_of(*required, &Json::is_string)) {
      refuse_schema("'required': expected a list of names");
    }
    for (const Json& name : *required) {
      needed.push_back(name.text());
      if (std::ranges::find(all, name.text(), [](const auto& one) { return one.first; }) !=
          all.end())
        continue;
      if (extra != nullptr && *extra == false) {
        refuse_schema(cat("'required' names ", shown(name.text()),
                          ", which is no property (additionalProperties: false)"));
      }
      all.emplace_back(name.text(), extra == nullptr ? &kAny : extra);
    }
  }
  count(all.size() - named->size());
  if (all.empty()) return record(schema, extra);
  if (const Json* const names = schema.find("propertyNames"); names != nullptr) {
    const Json* const listed = names->find("enum");
    const auto is_listed = [&](const auto& one) {
      return listed != nullptr && listed->is_array() && listed->size() <= kMostAlternatives &&
             std::ranges::any_of(*listed, [&](const Json& name) {
               return name.is_string() && name.text() == one.first;
             });
    };
    const bool any = *names == true || *names == Json{{"type", "string"}};
    if (!any && !std::ranges::all_of(all, is_listed)) loosen("propertyNames");
  }
  // The rest behind the properties before: as the first member, or behind others.
  Symbol first = either({lit("}")}), later = first;
  std::optional<Symbol> beyond;  // of those that no property describes, made once
  for (size_t i = all.size(); i-- > 0;) {
    const auto& [name, one] = all[i];
    if (name.size() >= kMostText) Grammar::refuse_size();
    const bool described = i < named->size();
    if (!described && !beyond) beyond = value(*one);
    const Sequence member = JsonRules::join(
        {lit(json_quote(name) + ":"), {rules_.space(), described ? value(*one) : *beyond, later}});
    std::vector<Sequence> as_first = {member},
                          as_later = {JsonRules::join({lit(","), {rules_.space()}, member})};
    if (std::ranges::find(needed, name) == needed.end()) {
      as_first.push_back({first});
      as_later.push_back({later});
    }
    first = either(as_first);
    later = either(as_later);
  }
  return either({JsonRules::join({lit("{"), {first}})});
}

// All of prefixItems are written, as far as maxItems allows; what goes beyond them only where the
// schema describes it or asks for it.
Symbol Builder::array(const Json& schema) {
  const auto lengths = this->lengths(schema, "minItems", "maxItems", kMostItems);
  int64_t least = lengths.first;
  std::optional<int64_t> most = lengths.second;
  const Json *prefix = schema.find("prefixItems"), *items = schema.find("items");
  if (prefix == nullptr && items != nullptr && items->is_array()) {  // drafts before 2020
    prefix = items;
    items = schema.find("additionalItems");
  }
  if (items != nullptr && items->is_array()) refuse_schema("'items': expected a schema");
  std::vector<Symbol> first;
  if (prefix != nullptr) {
    count(prefix->size());
    for (const Json& one : *prefix) first.push_back(value(one));
  }
  const auto there = static_cast<int64_t>(first.size());
  const bool none = items != nullptr && *items == false;
  if (none && least > there) refuse_schema("'minItems' is more than its items");
  if (none || (prefix != nullptr && items == nullptr)) {
    most = std::min(most.value_or(there), std::max(there, least));
  }
  least = std::max(least, std::min(there, most.value_or(there)));
  const bool any = items == nullptr || none;
  return rules_.array(first, any ? rules_.any_value() : value(*items), least, most);
}

Symbol Builder::of_type(const Json& schema, std::string_view type) {
  if (type == "object") return properties(schema);
  if (type == "array") return array(schema);
  if (type == "string") {
    const auto [least, most] = lengths(schema, "minLength", "maxLength", kMostLength);
    return rules_.string(least, most);
  }
  if (type == "number" || type == "integer") return numbers(schema, type == "integer");
  if (type == "boolean") return either({lit("true"), lit("false")});
  if (type == "null") return either({lit("null")});
  refuse_schema(cat("'type': ", shown(type), " is none"));
}

// The values of enum or const that are of its types.
Symbol Builder::listed(const Json& schema) {
  const std::vector<std::string_view> types = types_of(schema);
  std::vector<Sequence> alternatives;
  const auto add = [&](const Json& one) {
    const auto fits = [&](std::string_view type) { return is_of_type(one, type); };
    if (types.empty() || std::ranges::any_of(types, fits)) {
      if (is_longer_than(kMostText, one)) Grammar::refuse_size();
      alternatives.push_back(lit(one.dump()));
    }
  };
  if (const Json* const fixed = schema.find("const")) {
    add(*fixed);
  } else {
    count(schema["enum"].size());
    for (const Json& one : schema["enum"]) add(one);
  }
  if (alternatives.empty()) refuse_schema("'enum' or 'const' has no value of its type");
  return either(alternatives);
}

Symbol Builder::values(std::span<const Json> schemas) {
  if (schemas.empty()) refuse_schema("'anyOf', 'oneOf' or 'allOf': expected a list of schemas");
  count(schemas.size());
  std::vector<Sequence> alternatives;
  for (const Json& one : schemas) alternatives.push_back({value(one)});
  return either(alternatives);
}

// The keyword by which a schema says all, if any: others beside it are loosened, and alternatives
// are where members or items are described beside them.
std::string_view Builder::says_all(const Json& schema) {
  std::string_view alone;
  const bool described = has_any(schema, {"properties", "items", "prefixItems"});
  for (const std::string_view key : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"}) {
    const bool says = schema.contains(key) && !(described && key.ends_with("Of"));
    if (alone.empty() && says) alone = key;
  }
  for (const auto& [key, one] : schema.members()) {
    const bool types_values = key == "type" && (alone == "const" || alone == "enum");
    const bool heeded = alone.empty() ? !key.ends_with("Of") : key == alone || types_values;
    const Use use = use_of(key, one);
    if (use == Use::kLoosened || (use == Use::kHeld && !heeded)) loosen(key);
  }
  return alone;
}

Symbol Builder::one_of_types(const Json& schema) {
  const std::vector<std::string_view> types = types_of(schema);
  if (types.empty()) {
    if (has_any(schema, {"properties", "required", "additionalProperties", "propertyNames"}))
      return properties(schema);
    if (has_any(schema, {"items", "prefixItems", "minItems", "maxItems"})) return array(schema);
    if (has_any(schema, {"minLength", "maxLength"})) return of_type(schema, "string");
    const bool number =
        has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
    return number ? numbers(schema, false) : rules_.any_value();
  }
  std::vector<Sequence> alternatives;
  for (const std::string_view type : types) alternatives.push_back({of_type(schema, type)});
  return either(alternatives);
}

// Returns what `make` does, or where that is refused and may not be, anything.
template <typename Make>
Symbol Builder::or_any(const Make& make, Symbol (JsonRules::*any)()) {
  if (!loose_) return make();
  const size_t around = around_.size();
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    around_.resize(around);
    loosen("schema");
    return (rules_.*any)();
  }
}

Symbol Builder::value(const Json& schema) {
  return or_any([&] { return held(schema); }, &JsonRules::any_value);
}

Symbol Builder::arguments(const Json& schema) {
  root_ = &schema;
  const Json* object = &schema;
  const auto make = [&] {
    constexpr int kMostHops = 8;
    for (int hop = 0; hop < kMostHops && object->contains("$ref"); ++hop) {
      const Json* const to = find_reference(*root_, object->at("$ref").text());
      if (to == nullptr) refuse_schema("'$ref': nothing is there");
      object = to;
    }
    if (!object->is_object() || (object->contains("type") && object->at("type") != "object")) {
      refuse_schema("'type': expected an object");
    }
    const std::string_view alone = says_all(*object);
    if (!alone.empty()) loosen(alone);
    return properties(*object);
  };
  return or_any(make, &JsonRules::any_object);
}

Symbol Builder::held(const Json& schema) {
  if (schema == true) return rules_.any_value();
  if (!schema.is_object()) refuse_schema("parts: expected objects");
  const std::string_view alone = says_all(schema);
  if (alone == "$ref") return reference(schema["$ref"].text());
  if (alone == "const" || alone == "enum") return listed(schema);
  if (alone.empty()) return one_of_types(schema);
  const Json& list = schema[alone];
  const std::span<const Json> schemas(list.begin(), list.end());
  if (alone == "allOf" && schemas.size() > 1) loosen(alone);
  if (alone == "allOf") return values(schemas.first(std::min<size_t>(1, schemas.size())));
  const Symbol any = values(schemas);
  if (alone == "oneOf" && !exclude_each_other(*root_, schemas)) loosen(alone);
  return any;
}

// The rule of a schema, or of the arguments that are of it; and what of it is not held.
Symbol built(JsonRules& rules, const Json& schema, MemoryShare* memory,
             std::vector<std::string>& loosened, bool of_call) {
  Builder builder(rules, memory, of_call);
  const Symbol made = of_call ? builder.arguments(schema) : builder.schema(schema);
  loosened = builder.loosened();
  return made;
}

}  // namespace

Grammar json_object_grammar() {
  JsonRules rules;
  const JsonRules::Symbol text = rules.any_object();
  return rules.take(text);
}

SchemaGrammar json_schema_grammar(const Json& schema, MemoryShare* memory) {
  JsonRules rules(memory);
  SchemaGrammar made;
  const Symbol text = schema_rule(rules, schema, memory, made.loosened);
  made.grammar = rules.take(text);
  return made;
}

Symbol schema_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                   std::vector<std::string>& loosened) {
  return built(rules, schema, memory, loosened, false);
}

Symbol arguments_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                      std::vector<std::string>& loosened) {
  return built(rules, schema, memory, loosened, true);
}

}  // namespace split
