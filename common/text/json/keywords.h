// The keywords of JSON Schema: which of them a grammar can hold, and what their values are. Knows
// no grammar.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace split {

[[noreturn]] void refuse_schema(std::string_view what);

// kNothing: it bounds no text, as words for people do, or not with this value.
enum class Use : uint8_t { kNothing, kHeld, kLoosened };
// Throws Error(kInput) where the value is not of the keyword's kind. Keywords that nobody knows are
// loosened.
Use use_of(std::string_view key, const Json& value);

}  // namespace split
