#include "text/json/in_order.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/resources/memory_budget.h"

namespace split {
namespace {

// Bytes of a string's literal, at most.
uint64_t most_of_text(std::string_view text) {
  constexpr uint64_t kMarks = 2, kEscape = 6;
  uint64_t bytes = kMarks;
  for (const char c : text) {
    const bool escaped = static_cast<uint8_t>(c) < 0x20 || c == 0x7f || c == '"' || c == '\\';
    bytes += escaped ? kEscape : 1;
  }
  return bytes;
}

uint64_t most_of(const Json& value) {
  if (value.is_string()) return most_of_text(value.text());
  if (!value.is_array() && !value.is_object()) return value.dump().size();
  uint64_t bytes = 2;
  for (const auto& [name, one] : value.members()) bytes += 2 + most_of_text(name) + most_of(one);
  if (!value.is_array()) return bytes;
  for (const Json& one : value) bytes += 1 + most_of(one);
  return bytes;
}

// Subtracts a value's bytes; the result is below 0 once they do not fit.
int64_t left_of(int64_t bytes, const Json& value) {
  if (value.is_string()) return bytes - static_cast<int64_t>(value.text().size());
  --bytes;
  for (const auto& [name, one] : value.members()) {
    bytes = left_of(bytes - static_cast<int64_t>(name.size()), one);
    if (bytes < 0) return bytes;
  }
  if (!value.is_array()) return bytes;
  for (const Json& one : value) {
    bytes = left_of(bytes, one);
    if (bytes < 0) return bytes;
  }
  return bytes;
}

// Whether a member of a schema bounds no text. A member of "properties" may have any such name, but
// its value is a schema, and no text or list.
bool is_for_people(std::string_view name, const Json& value) {
  constexpr std::string_view kTexts[] = {"type",    "const",   "$ref",  "$id",
                                         "$anchor", "pattern", "format"};
  constexpr std::string_view kLists[] = {"default", "example", "examples"};
  if (value.is_string()) return std::ranges::find(kTexts, name) == std::end(kTexts);
  return value.is_array() && std::ranges::find(kLists, name) != std::end(kLists);
}

// `schema`: leaves out words for people.
void write(const Json& value, std::string& out, bool schema = false) {
  if (!value.is_array() && !value.is_object()) {
    out += value.dump();
    return;
  }
  const char* before = "";
  const auto separate = [&] { out += std::exchange(before, ","); };
  out += value.is_array() ? '[' : '{';
  for (const auto& [name, one] : value.members()) {
    if (schema && is_for_people(name, one)) continue;
    separate();
    out += json_quote(name);
    out += ':';
    write(one, out, schema && name != "enum" && name != "const");
  }
  if (value.is_object()) {
    out += '}';
    return;
  }
  for (const Json& one : value) {
    separate();
    write(one, out, schema);
  }
  out += ']';
}

std::string written(const Json& value, MemoryShare* memory, bool schema) {
  const uint64_t most = most_of(value);
  if (memory != nullptr) memory->take(2 * most);  // beside the longest of its strings
  std::string out;
  if (!schema) out.reserve(most);
  write(value, out, schema);
  return out;
}

}  // namespace

std::string json_in_order(const Json& value, MemoryShare* memory) {
  return written(value, memory, false);
}

std::string schema_in_order(const Json& schema, MemoryShare* memory) {
  return written(schema, memory, true);
}

bool is_longer_than(size_t bytes, const Json& value) {
  return left_of(static_cast<int64_t>(bytes), value) < 0;
}

}  // namespace split
