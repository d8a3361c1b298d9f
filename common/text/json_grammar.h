// The grammar of JSON, and of JSON that a schema describes: a subset of JSON Schema that can be
// held byte by byte. Members come in the schema's order and no others, with at most one space
// behind a comma or a colon; numbers have a bounded number of digits, and what has no schema some
// 50 levels.
#pragma once

#include "base/json.h"
#include "text/grammar.h"

namespace split {

// Any object.
Grammar json_object_grammar();

// A value as this schema says: type (also a list of them), properties, required, items, minItems,
// maxItems, minLength, maxLength, additionalProperties, enum, const, anyOf, and $ref within the
// document where it leads to no cycle. Each text of the grammar is valid; not each valid text is of
// the grammar. Throws Error(kInput) that names what is not of these.
Grammar json_schema_grammar(const Json& schema);
// A schema as text whose members keep their order.
std::string json_in_order(const Json& value);

}  // namespace split
