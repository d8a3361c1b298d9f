#include "text/json/schema_builder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "base/resources/memory_budget.h"
#include "text/json/exclusive.h"
#include "text/json/in_order.h"
#include "text/json/pattern.h"

namespace split {
namespace {

constexpr int64_t kMostItems = 256;     // minItems and maxItems, to be held
constexpr int64_t kMostLength = 1024;   // minLength and maxLength
constexpr size_t kMostReferences = 16;  // nested in each other
constexpr size_t kDeepReference = 64;   // nesting of a schema that a reference leads to
constexpr size_t kMostName = 32, kMostLoosened = 32;

}  // namespace

// Notes a keyword in characters that fit a header and a line of log.
void SchemaBuilder::loosen(std::string_view key) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '$' ||
           c == '-' || c == '_';
  };
  const bool shows = !key.empty() && key.size() <= kMostName && std::ranges::all_of(key, plain) &&
                     loosened_.size() < kMostLoosened;
  loosened_.emplace(shows ? key : "others");
}

// Loosens lengths that cannot be held.
std::pair<int64_t, std::optional<int64_t>> SchemaBuilder::lengths(const Json& schema,
                                                                  const char* least,
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

// The least or the largest whole number that the schema allows; nothing: no bound. A bound beyond
// all our numbers is loosened, and one that all of them meet is none.
std::optional<int64_t> SchemaBuilder::bound(const Json& schema, bool low) {
  std::optional<int64_t> closest;
  for (const char* key :
       {low ? "minimum" : "maximum", low ? "exclusiveMinimum" : "exclusiveMaximum"}) {
    const Json* const value = schema.find(key);
    if (value == nullptr || *value == false) continue;
    constexpr auto kMost = static_cast<double>(JsonRules::kMostBound);
    const double number = value->is_boolean() ? kMost : value->get<double>();
    if (value->is_boolean() || std::abs(number) >= kMost) {  // draft 4: true alters a bound
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

// Holds bounds that are decimals of few places, and loosens the others.
SchemaBuilder::Symbol SchemaBuilder::decimals(const Json& schema) {
  constexpr double kMost = 1e12;  // JsonRules::kMostBound at most places
  std::map<std::string_view, double> bounds;
  size_t places = 0;
  for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* const value = schema.find(key);
    if (value == nullptr || *value == false) continue;
    const double number = value->is_boolean() ? kMost : value->get<double>();
    size_t its = 0;
    double unit = 1;
    for (; its <= JsonRules::kMostPlaces && std::round(number * unit) / unit != number; ++its)
      unit *= 10;
    if (std::abs(number) >= kMost || its > JsonRules::kMostPlaces) {
      loosen(key);
      continue;
    }
    bounds[key] = number;
    places = std::max(places, its);
  }
  if (bounds.empty()) return rules_.number(true);
  if (bounds == decltype(bounds){{"minimum", 0}}) return rules_.number(false);
  const double unit = std::pow(10, places);
  JsonRules::Bound low{static_cast<int64_t>(-kMost * unit)},
      high{static_cast<int64_t>(kMost * unit)};
  for (const auto& [key, number] : bounds) {
    const JsonRules::Bound one{std::llround(number * unit), key.starts_with("exclusive")};
    const bool same = one.scaled == (key.ends_with("inimum") ? low : high).scaled;
    if (key.ends_with("inimum")) {
      if (one.scaled > low.scaled || (same && one.open)) low = one;
    } else if (one.scaled < high.scaled || (same && one.open)) {
      high = one;
    }
  }
  if (low.scaled > high.scaled || (low.scaled == high.scaled && (low.open || high.open)))
    refuse_schema("bounds of a number leave none");
  return rules_.decimal(low, high, places);
}

SchemaBuilder::Symbol SchemaBuilder::integers(const Json& schema) {
  const std::optional<int64_t> least = bound(schema, true), most = bound(schema, false);
  constexpr int64_t kMost = JsonRules::kMostInteger, kBeyond = JsonRules::kMostBound;
  int64_t low = least.value_or(-kMost), high = most.value_or(kMost);
  if (!most && low > kMost) high = kBeyond;
  if (!least && high < -kMost) low = -kBeyond;
  if (low > high) refuse_schema("bounds of an integer leave none");
  if (low <= kMost) high = std::min(high, kMost);
  if (high >= -kMost) low = std::max(low, -kMost);
  return rules_.integer(low, high);
}

// A schema that contains itself is written out once; further in, any value is allowed.
SchemaBuilder::Symbol SchemaBuilder::reference(const std::string& path) {
  if (const auto known = referred_.find(path); known != referred_.end()) return known->second;
  if (memory_ != nullptr) memory_->take(4 * path.size());  // copies, and parts that are looked for
  if (!path.starts_with('#')) refuse_schema(cat("'$ref': expected #/..., got ", shown(path)));
  const Json* const found = find_reference(*root_, path, rules_.steps());
  if (found == nullptr) refuse_schema(cat("'$ref': nothing is at ", shown(path)));
  const bool inside = std::ranges::find(around_, path) != around_.end();
  if (inside || around_.size() > kMostReferences || depth_ > kDeepReference) {
    loosen("$ref");
    return rules_.any_value();
  }
  around_.push_back(path);
  const Symbol symbol = value(*found);
  around_.pop_back();
  referred_.emplace(path, symbol);
  return symbol;
}

// All of prefixItems are written, as far as maxItems allows; items beyond them only if the schema
// describes or requires them.
SchemaBuilder::Symbol SchemaBuilder::array(const Json& schema) {
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

// Notes the bounds of texts that cannot be held where these are written by themselves.
void SchemaBuilder::loosen_texts(const Json& schema) {
  for (const char* key : {"minLength", "maxLength", "pattern", "format"}) {
    if (schema.contains(key)) loosen(key);
  }
}

// A text of a pattern, or else of a format, or of a length. If a schema has two of them, the second
// is held if it adds nothing.
SchemaBuilder::Symbol SchemaBuilder::text(const Json& schema) {
  if (rules_.is_quoted()) {
    loosen_texts(schema);
    return rules_.string(0, {});
  }
  const auto [least, most] = lengths(schema, "minLength", "maxLength", kMostLength);
  for (const char* key : {"pattern", "format"}) {
    const Json* const one = schema.find(key);
    if (one == nullptr) continue;
    const bool is_pattern = std::string_view(key) == "pattern";
    const std::string_view said = is_pattern ? one->text() : pattern_of_format(one->text());
    std::optional<PatternRule> made;
    try {
      if (is_pattern || !said.empty()) made = pattern_rule(rules_, said);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
    }
    if (!made) {
      loosen(key);
      continue;
    }
    if (is_pattern && schema.contains("format")) loosen("format");
    if (made->least < static_cast<size_t>(least)) loosen("minLength");
    if (most && made->most > static_cast<size_t>(*most)) loosen("maxLength");
    return rules_.string(made->text);
  }
  return rules_.string(least, most);
}

SchemaBuilder::Symbol SchemaBuilder::of_type(const Json& schema, std::string_view type) {
  if (type == "object") return properties(schema);
  if (type == "array") return array(schema);
  if (type == "string") return text(schema);
  if (schema.contains("format")) loosen("format");
  if (type == "number") return decimals(schema);
  if (type == "integer") return integers(schema);
  if (type == "boolean") return either({lit("true"), lit("false")});
  if (type == "null") return either({lit("null")});
  refuse_schema(cat("'type': ", shown(type), " is none"));
}

// The values of enum or const of the schema's types.
SchemaBuilder::Symbol SchemaBuilder::listed(const Json& schema) {
  const std::vector<std::string_view> types = types_of(schema);
  std::vector<Sequence> alternatives;
  const auto add = [&](const Json& one) {
    const auto fits = [&](std::string_view type) { return is_of_type(one, type); };
    if (types.empty() || std::ranges::any_of(types, fits)) {
      if (is_longer_than(kMostText, one)) Grammar::refuse_size();
      alternatives.push_back(rules_.written(one));
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

SchemaBuilder::Symbol SchemaBuilder::values(std::span<const Json> schemas) {
  if (schemas.empty()) refuse_schema("'anyOf', 'oneOf' or 'allOf': expected a list of schemas");
  count(schemas.size());
  std::vector<Sequence> alternatives;
  for (const Json& one : schemas) alternatives.push_back({value(one)});
  return either(alternatives);
}

// Pays for the search of each known keyword among its members.
void SchemaBuilder::spend(const Json& schema) {
  constexpr int64_t kKeywords = 32;
  rules_.steps() -= kKeywords * static_cast<int64_t>(schema.size());
  if (rules_.steps() < 0) refuse_schema("members: too many in all");
}

// The keyword that alone describes a schema, if any: others beside it are loosened, and
// alternatives are, if members or items are described beside them.
std::string_view SchemaBuilder::says_all(const Json& schema) {
  spend(schema);
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

SchemaBuilder::Symbol SchemaBuilder::one_of_types(const Json& schema) {
  const std::vector<std::string_view> types = types_of(schema);
  if (types.empty()) {
    if (has_any(schema, {"properties", "required", "additionalProperties", "propertyNames"}))
      return properties(schema);
    if (has_any(schema, {"items", "prefixItems", "minItems", "maxItems"})) return array(schema);
    if (has_any(schema, {"minLength", "maxLength", "pattern", "format"})) return text(schema);
    const bool number =
        has_any(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
    return number ? decimals(schema) : rules_.any_value();
  }
  std::vector<Sequence> alternatives;
  for (const std::string_view type : types) alternatives.push_back({of_type(schema, type)});
  return either(alternatives);
}

SchemaBuilder::Symbol SchemaBuilder::value(const Json& schema) {
  ++depth_;
  const Symbol made = or_any([&] { return held(schema); }, &JsonRules::any_value);
  --depth_;
  return made;
}

SchemaBuilder::Symbol SchemaBuilder::held(const Json& schema) {
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
  if (alone == "oneOf" && !exclude_each_other(*root_, schemas, rules_.steps())) loosen(alone);
  return any;
}

}  // namespace split
