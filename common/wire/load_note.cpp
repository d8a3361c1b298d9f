#include "wire/load_note.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/bytes.h"

namespace split::wire {
namespace {

constexpr size_t kMarkDigits = 16;

// Parses "0.40" in hundredths; other numbers of digits are never written.
std::optional<double> parse_price(std::string_view text) {
  if (text.size() != 4 || text[1] != '.') return std::nullopt;
  const auto whole = parse_u64(text.substr(0, 1), 0, 1);
  const auto hundredths = parse_u64(text.substr(2), 0, 99);
  if (!whole || !hundredths || *whole * 100 + *hundredths > 100) return std::nullopt;
  return static_cast<double>(*whole * 100 + *hundredths) / 100;
}

bool read(std::string_view name, std::string_view value, LoadNote& note) {
  if (name == "price") {
    const auto price = parse_price(value);
    note.price = price.value_or(0);
    return price.has_value();
  }
  if (name == "cached") {
    const auto rows = parse_u64(value, 0, UINT32_MAX);
    note.cached = static_cast<uint32_t>(rows.value_or(0));
    return rows.has_value();
  }
  if (name == "bits") {
    note.bits = value;
    return is_lower_hex(value, kMarkDigits);
  }
  if (name != "want" && name != "draft") return true;
  const auto number = parse_u64(value, 0, name == "want" ? kMostCut : kMostDraft);
  if (!number) return false;
  (name == "want" ? note.want.emplace() : note.draft) = static_cast<int>(*number);
  return true;
}

}  // namespace

std::string bits_mark(std::string_view bits) {
  return Sha256::hex_of(as_bytes_of(bits)).substr(0, kMarkDigits);
}

std::string to_text(const LoadNote& note) {
  char price[8];
  std::snprintf(price, sizeof price, "%.2f", std::clamp(note.price, 0.0, 1.0));
  return cat(note.want ? cat("want=", *note.want, ", ") : "", "price=", price,
             ", draft=", note.draft, note.cached > 0 ? cat(", cached=", note.cached) : "",
             note.bits.empty() ? "" : cat(", bits=", note.bits));
}

std::optional<LoadNote> parse_load_note(std::string_view text) {
  LoadNote note;
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (!read(part.substr(0, equals), value, note)) return std::nullopt;
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return note;
}

}  // namespace split::wire
