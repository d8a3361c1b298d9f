#include <algorithm>

#include "text/json/exclusive.h"
#include "text/json/schema_builder.h"

namespace split {

// Any members, whose names and values the schema may bound.
SchemaBuilder::Symbol SchemaBuilder::record(const Json& schema, const Json* extra) {
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
SchemaBuilder::Symbol SchemaBuilder::properties(const Json& schema) {
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

SchemaBuilder::Symbol SchemaBuilder::arguments(const Json& schema) {
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

}  // namespace split
