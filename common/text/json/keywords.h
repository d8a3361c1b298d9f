// The keywords of JSON Schema: which of them a grammar can hold, and their values' types. Knows no
// grammar.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace split {

[[noreturn]] void refuse_schema(std::string_view what);

// kNothing: bounds no text, like words for people, or not with this value.
enum class Use : uint8_t { kNothing, kHeld, kLoosened };
// Throws Error(kInput) if the value is not of the keyword's type. Unknown keywords are loosened.
Use use_of(std::string_view key, const Json& value);

// Whether a value is of the type that this name of JSON Schema means.
bool is_of_type(const Json& value, std::string_view type);
// A schema's `type`, one or several; empty if it has none. Throws Error(kInput) for a value that is
// no name or list of names.
std::vector<std::string_view> types_of(const Json& schema);
bool has_any(const Json& schema, std::initializer_list<const char*> keys);

}  // namespace split
