// JSON as text whose members keep their order, and how long a text is before it is made.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace split {

// `memory` pays for the text before it is made; throws Error(kBusy) if it has no more.
std::string json_in_order(const Json& value, MemoryShare* memory = nullptr);
// Writes a JSON schema without members that bound no text: words for people, which may be long.
std::string schema_in_order(const Json& schema, MemoryShare* memory = nullptr);
// Whether its text takes more than so many bytes, found without making it.
bool is_longer_than(size_t bytes, const Json& value);

}  // namespace split
