// The grammar of JSON, and of JSON that a schema describes, as far as JSON Schema can be held byte
// by byte. Members come in the schema's order and no others, with at most one space behind a comma
// or a colon; numbers have a bounded number of digits, and values without a schema some 50 levels.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/grammar.h"
#include "text/json/rules.h"

namespace split {

// A value by this schema: type (also a list of them), properties, required, items, prefixItems,
// minItems, maxItems, minLength, maxLength, additionalProperties, enum, const, anyOf, oneOf of
// alternatives that are known to exclude each other, bounds of numbers (other than integers as
// decimals of six places at most), pattern and some formats (pattern.h), and $ref within the
// document, once around itself. Each text of the rule is valid but for the keywords that are added
// to `loosened`, sorted; not each valid text is of the rule. Throws Error(kInput) that names a part
// that is no schema, or has no value. `memory` pays for the rules.
Grammar::Symbol schema_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                            std::vector<std::string>& loosened);
// The arguments of a tool: an object of its schema. Refuses nothing: a part that is no schema, or
// takes too much, becomes any JSON.
Grammar::Symbol arguments_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                               std::vector<std::string>& loosened);

// An argument that is written by itself: as JSON, or as a text, which is one of the listed ones if
// there are any.
struct ArgumentRule {
  std::string name;
  bool required;
  std::optional<Grammar::Symbol> json;
  std::vector<std::string> texts;
};
// The arguments of a tool in their order; a value that may be a text always is one. Nothing: any
// names, with any texts. Refuses nothing.
std::optional<std::vector<ArgumentRule>> argument_rules(JsonRules& rules, const Json& schema,
                                                        MemoryShare* memory,
                                                        std::vector<std::string>& loosened);

}  // namespace split
