#include "text/json/schema_builder.h"

#include <algorithm>

#include "text/json/exclusive.h"

namespace split {
namespace {

constexpr size_t kMostLookedAt = 64;  // schemas that are read for one argument's texts

}  // namespace

// Any members, whose names and values the schema may bound.
SchemaBuilder::Symbol SchemaBuilder::record(const Json& schema, const Json* extra) {
  Symbol name = rules_.any_name();
  if (const Json* const names = schema.find("propertyNames"); names != nullptr) {
    const Json *type = names->find("type"), *listed = names->find("enum");
    const bool text = type != nullptr ? *type == "string"
                                      : listed != nullptr && listed->is_array() &&
                                            std::ranges::all_of(*listed, &Json::is_string);
    if (text && !rules_.is_quoted()) {
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

// The described members, in their order, then those only required. Nothing: any.
std::vector<SchemaBuilder::Member> SchemaBuilder::members(const Json& schema) {
  static const Json kNone = Json::object(), kAny = true;
  const Json *named = schema.find("properties"), *required = schema.find("required"),
             *extra = schema.find("additionalProperties");
  if (named == nullptr) named = &kNone;
  count(named->size());
  std::vector<Member> all;
  for (const auto& [name, one] : named->members()) all.push_back({name, &one, true, false});
  if (required != nullptr) {
    if (required->size() > kMostAlternatives || !std::ranges::all_of(*required, &Json::is_string)) {
      refuse_schema("'required': expected a list of names");
    }
    for (const Json& name : *required) {
      const auto known = std::ranges::find(all, name.text(), &Member::name);
      if (known != all.end()) {
        known->required = true;
        continue;
      }
      if (extra != nullptr && *extra == false) {
        refuse_schema(cat("'required' names ", shown(name.text()),
                          ", which is no property (additionalProperties: false)"));
      }
      all.push_back({name.text(), extra == nullptr ? &kAny : extra, false, true});
    }
  }
  count(all.size() - named->size());
  const Json* const names = all.empty() ? nullptr : schema.find("propertyNames");
  if (names != nullptr) {
    const Json* const listed = names->find("enum");
    const auto is_listed = [&](const Member& one) {
      return listed != nullptr && listed->is_array() && listed->size() <= kMostAlternatives &&
             std::ranges::any_of(*listed, [&](const Json& name) {
               return name.is_string() && name.text() == one.name;
             });
    };
    const bool any = *names == true || *names == Json{{"type", "string"}};
    if (!any && !std::ranges::all_of(all, is_listed)) loosen("propertyNames");
  }
  return all;
}

// An object with these members, in their order; optional ones may be left out. Other members are
// never written, whatever additionalProperties allows, but for required ones.
SchemaBuilder::Symbol SchemaBuilder::properties(const Json& schema) {
  const std::vector<Member> all = members(schema);
  if (all.empty()) return record(schema, schema.find("additionalProperties"));
  // The rest behind the properties so far: as the first member, or behind others.
  Symbol first = either({lit("}")}), later = first;
  std::optional<Symbol> beyond;  // value of members without a property, made once
  for (size_t i = all.size(); i-- > 0;) {
    const Member& one = all[i];
    if (one.name.size() >= kMostText) Grammar::refuse_size();
    if (!one.described && !beyond) beyond = value(*one.schema);
    const Symbol held = one.described ? value(*one.schema) : *beyond;
    const Sequence member =
        JsonRules::join({rules_.name(one.name), lit(":"), {rules_.space(), held, later}});
    std::vector<Sequence> as_first = {member},
                          as_later = {JsonRules::join({lit(","), {rules_.space()}, member})};
    if (!one.required) {
      as_first.push_back({first});
      as_later.push_back({later});
    }
    first = either(as_first);
    later = either(as_later);
  }
  return either({JsonRules::join({lit("{"), {first}})});
}

// The schema of a tool's arguments, which are an object.
const Json& SchemaBuilder::object_of(const Json& schema) {
  root_ = &schema;
  const Json* object = &schema;
  constexpr int kMostHops = 8;
  for (int hop = 0; hop < kMostHops && object->contains("$ref"); ++hop) {
    const Json* const to = find_reference(*root_, object->at("$ref").text(), rules_.steps());
    if (to == nullptr) refuse_schema("'$ref': nothing is there");
    object = to;
  }
  if (!object->is_object() || (object->contains("type") && object->at("type") != "object")) {
    refuse_schema("'type': expected an object");
  }
  const std::string_view alone = says_all(*object);
  if (!alone.empty()) loosen(alone);
  return *object;
}

// Whether a tool of this schema takes no arguments: it describes none, and allows no others.
bool SchemaBuilder::takes_none(const Json& object) {
  const auto empty = [&](const char* key) {
    const Json* const one = object.find(key);
    return one == nullptr || one->empty();
  };
  return empty("properties") && empty("required") &&
         !has_any(object, {"additionalProperties", "patternProperties", "propertyNames",
                           "minProperties", "anyOf", "oneOf", "allOf", "enum", "const"});
}

SchemaBuilder::Symbol SchemaBuilder::arguments(const Json& schema) {
  return or_any(
      [&] {
        const Json& object = object_of(schema);
        return takes_none(object) ? either({lit("{}")}) : properties(object);
      },
      &JsonRules::any_object);
}

// Adds the texts that a schema allows: any, or listed ones. Looks at `left` schemas at most.
void SchemaBuilder::add_texts(const Json& schema, Texts& out, size_t& left) {
  if (left == 0 || !schema.is_object()) {
    out.any |= left == 0 || schema == true;
    return;
  }
  --left;
  const std::string_view alone = says_all(schema);
  const std::vector<std::string_view> types = types_of(schema);
  const auto has_text = [&] { return std::ranges::find(types, "string") != types.end(); };
  if (alone == "$ref") {
    const Json* const to = find_reference(*root_, schema["$ref"].text(), rules_.steps());
    if (to != nullptr) add_texts(*to, out, left);
  } else if (alone == "const" || alone == "enum") {
    const Json& all = schema[alone];
    if (!types.empty() && !has_text()) return;
    const std::span<const Json> values =
        alone == "enum" ? std::span<const Json>(all.begin(), all.end()) : std::span(&all, 1);
    count(values.size());
    for (const Json& one : values) {
      if (one.is_string()) out.listed.push_back(one.text());
    }
  } else if (!alone.empty()) {
    const Json& all = schema[alone];
    const size_t most = alone == "allOf" ? 1 : all.size();
    if (alone != "anyOf" && all.size() > 1) loosen(alone);
    for (size_t i = 0; i < std::min(most, all.size()); ++i) add_texts(all[i], out, left);
  } else if (has_text() || (types.empty() && !describes_others(schema))) {
    out.any = true;
    loosen_texts(schema);
  }
}

bool SchemaBuilder::describes_others(const Json& schema) {
  return has_any(schema, {"properties", "required", "additionalProperties", "propertyNames",
                          "items", "prefixItems", "minItems", "maxItems", "minimum", "maximum",
                          "exclusiveMinimum", "exclusiveMaximum"});
}

std::optional<std::vector<ArgumentRule>> SchemaBuilder::argument_list(const Json& schema) {
  std::vector<ArgumentRule> list;
  bool any = false;
  const auto make = [&] {
    const Json& object = object_of(schema);
    for (const Member& one : members(object)) {
      Texts texts;
      size_t left = kMostLookedAt;
      if (!done([&] { add_texts(*one.schema, texts, left); })) texts = {true, {}};
      list.push_back({std::string(one.name), one.required, {}, {}});
      if (texts.any) continue;
      list.back().texts = std::move(texts.listed);
      if (list.back().texts.empty()) list.back().json = value(*one.schema);
    }
    const Json* const extra = object.find("additionalProperties");
    any = list.empty() && !takes_none(object) && (extra == nullptr || *extra != false);
    for (const char* key : {"additionalProperties", "propertyNames"}) {
      if (any && object.contains(key) && object[key] != true) loosen(key);
    }
  };
  if (!done(make) || any) return std::nullopt;
  return list;
}

}  // namespace split
