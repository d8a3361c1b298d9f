#include "text/json/keywords.h"

#include <algorithm>

#include "base/error.h"

namespace split {
namespace {

struct Keyword {
  std::string_view name, kind;
  Use use;
};
constexpr std::string_view kAnything = "", kAnObject = "an object", kAList = "a list",
                           kSomeText = "text", kANumber = "a number",
                           kTrueOrFalse = "true or false", kABound = "a bound",
                           kASchema = "true, false or a schema";
constexpr Keyword kKeywords[] = {
    {"type", kAnything, Use::kHeld},
    {"properties", kAnObject, Use::kHeld},
    {"required", kAList, Use::kHeld},
    {"additionalProperties", kASchema, Use::kHeld},
    {"propertyNames", kASchema, Use::kHeld},
    {"items", kAnything, Use::kHeld},
    {"prefixItems", kAList, Use::kHeld},
    {"additionalItems", kASchema, Use::kHeld},
    {"minItems", kAnything, Use::kHeld},
    {"maxItems", kAnything, Use::kHeld},
    {"minLength", kAnything, Use::kHeld},
    {"maxLength", kAnything, Use::kHeld},
    {"minimum", kANumber, Use::kHeld},
    {"maximum", kANumber, Use::kHeld},
    {"exclusiveMinimum", kABound, Use::kHeld},
    {"exclusiveMaximum", kABound, Use::kHeld},
    {"enum", kAList, Use::kHeld},
    {"const", kAnything, Use::kHeld},
    {"anyOf", kAList, Use::kHeld},
    {"oneOf", kAList, Use::kHeld},
    {"allOf", kAList, Use::kHeld},
    {"$ref", kSomeText, Use::kHeld},
    {"multipleOf", kANumber, Use::kLoosened},
    {"format", kSomeText, Use::kHeld},
    {"pattern", kSomeText, Use::kHeld},
    {"patternProperties", kAnObject, Use::kLoosened},
    {"uniqueItems", kTrueOrFalse, Use::kLoosened},
    {"nullable", kTrueOrFalse, Use::kLoosened},
    {"minProperties", kANumber, Use::kLoosened},
    {"maxProperties", kANumber, Use::kLoosened},
    {"contains", kASchema, Use::kLoosened},
    {"not", kASchema, Use::kLoosened},
    // Words for people, and targets of references.
    {"title", kAnything, Use::kNothing},
    {"description", kAnything, Use::kNothing},
    {"default", kAnything, Use::kNothing},
    {"example", kAnything, Use::kNothing},
    {"examples", kAnything, Use::kNothing},
    {"deprecated", kAnything, Use::kNothing},
    {"readOnly", kAnything, Use::kNothing},
    {"writeOnly", kAnything, Use::kNothing},
    {"discriminator", kAnything, Use::kNothing},
    {"$comment", kAnything, Use::kNothing},
    {"$schema", kAnything, Use::kNothing},
    {"$id", kAnything, Use::kNothing},
    {"$anchor", kAnything, Use::kNothing},
    {"$defs", kAnything, Use::kNothing},
    {"definitions", kAnything, Use::kNothing},
};

bool is_a(const Json& value, std::string_view kind) {
  if (kind == kAnObject) return value.is_object();
  if (kind == kAList) return value.is_array();
  if (kind == kSomeText) return value.is_string();
  if (kind == kANumber) return value.is_number();
  if (kind == kTrueOrFalse) return value.is_boolean();
  if (kind == kABound) return value.is_number() || value.is_boolean();  // draft 4's
  return kind != kASchema || value.is_object() || value.is_boolean();
}

}  // namespace

void refuse_schema(std::string_view what) {
  throw Error(ErrorKind::kInput, cat("'response_format': the schema's ", what), "response_format");
}

Use use_of(std::string_view key, const Json& value) {
  const auto keyword = std::ranges::find(kKeywords, key, &Keyword::name);
  if (keyword == std::end(kKeywords)) return Use::kLoosened;
  if (!is_a(value, keyword->kind)) {
    refuse_schema(cat("'", key, "': expected ", keyword->kind));
  }
  return keyword->kind == kTrueOrFalse && value == false ? Use::kNothing : keyword->use;
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

bool has_any(const Json& schema, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return schema.contains(key); });
}

std::vector<std::string_view> types_of(const Json& schema) {
  const Json* const type = schema.find("type");
  if (type == nullptr) return {};
  if (type->is_string()) return {type->text()};
  std::vector<std::string_view> types;
  if (type->is_array() && type->size() <= 7) {
    for (const Json& one : *type) {
      if (one.is_string()) types.push_back(one.text());
    }
  }
  if (types.empty() || types.size() != type->size())
    refuse_schema("'type': expected one or a list");
  return types;
}

}  // namespace split
