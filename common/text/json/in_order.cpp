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

// Counts what is left of so many bytes; less than 0 where it ends before all is seen.
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

void write(const Json& value, std::string& out) {
  if (!value.is_array() && !value.is_object()) {
    out += value.dump();
    return;
  }
  const char* before = "";
  const auto separate = [&] { out += std::exchange(before, ","); };
  out += value.is_array() ? '[' : '{';
  for (const auto& [name, one] : value.members()) {
    separate();
    out += json_quote(name);
    out += ':';
    write(one, out);
  }
  if (value.is_object()) {
    out += '}';
    return;
  }
  for (const Json& one : value) {
    separate();
    write(one, out);
  }
  out += ']';
}

}  // namespace

std::string json_in_order(const Json& value, MemoryShare* memory) {
  const uint64_t most = most_of(value);
  if (memory != nullptr) memory->take(2 * most);  // beside the longest of its strings
  std::string out;
  out.reserve(most);
  write(value, out);
  return out;
}

bool is_longer_than(size_t bytes, const Json& value) {
  return left_of(static_cast<int64_t>(bytes), value) < 0;
}

}  // namespace split
