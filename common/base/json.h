// JSON from outside, parsed strictly: what any reader of files or headers wants checked before it
// looks at a value. Only the .cpp files see nlohmann's parser; this header needs its forward
// declarations alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace split {

// The whole text as JSON. Refuses other bytes before or after the value, invalid UTF-8, numbers
// that do not fit, a key twice in one object, and more than `max_depth` nested objects and arrays.
// Throws Error(kInput) that begins with `where`. Time and memory are linear in the text; the caller
// caps its size.
nlohmann::json parse_json(std::string_view text, int max_depth, std::string_view where);

// `name` for a message: in quotes, at most 64 bytes of it, no control characters.
std::string shown(std::string_view name);

}  // namespace split
