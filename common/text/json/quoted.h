// JSON whose texts stand between marks of their own, as they are, and whose names stand bare:
// {name:<|"|>text<|"|>,more:[1,true]}. Writes it, and reads it byte by byte as the text of JSON.
// Knows no call around it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace split {

// Bytes that a bare name cannot have, nor control characters.
inline constexpr std::string_view kNoNameBytes = " \t\n\r\"<>,:[]{}";

// Whether a text can be a mark: ASCII that no other value begins with.
bool is_quote(std::string_view mark);
// Throws Error(kInput) for a name or a text that cannot be written.
std::string quoted_name(std::string_view name);
std::string quoted_json(const Json& value, std::string_view quote);
// Adds part of a string of JSON.
void add_escaped(std::string_view text, std::string& out);

// Reads one object, behind its first bracket. Plain data, which can be copied at any byte.
class QuotedScanner {
 public:
  // Takes the next byte and adds complete text. Returns whether the object ends with it.
  bool next(std::string_view quote, char c, std::string& told);

 private:
  std::string open_;  // brackets around this place
  std::string held_;  // a name, a mark, or text read and not yet passed on
  bool in_text_ = false, in_name_ = false;
};

}  // namespace split
