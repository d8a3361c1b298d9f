#include "http/range.h"

#include <algorithm>
#include <optional>

#include "http/head.h"

namespace split::http {
namespace {

// Parses digits only; a number beyond 64 bits becomes the largest, past any end.
std::optional<uint64_t> number(std::string_view text) {
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return parse_u64(text, 0, ~0ull).value_or(~0ull);
}

bool names_etag(std::string_view list, std::string_view etag) {
  if (trim(list) == "*") return true;
  // Our tags have no commas, so that splitting at commas is exact.
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = trim(list.substr(0, comma));
    if (item.starts_with("W/")) item.remove_prefix(2);  // this comparison is the weak one
    if (item == etag) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

Selection select_bytes(std::string_view method, const Headers& headers, std::string_view etag,
                       uint64_t size) {
  const Selection whole{200, 0, size};
  const bool get = method == "GET";
  if (!get && method != "HEAD") return whole;
  if (const auto known = headers.get("If-None-Match");
      known && !etag.empty() && names_etag(*known, etag)) {
    return {304, 0, 0};
  }
  const auto range = headers.get("Range");
  if (!get || !range || headers.count("Range") != 1) return whole;
  if (const auto condition = headers.get("If-Range");
      condition && (etag.empty() || *condition != etag)) {
    return whole;
  }
  constexpr std::string_view kUnit = "bytes=";
  if (range->size() < kUnit.size() || !same_name(range->substr(0, kUnit.size()), kUnit))
    return whole;
  const std::string_view spec = trim(range->substr(kUnit.size()));
  const size_t dash = spec.find('-');
  if (dash == std::string_view::npos || spec.find(',') != std::string_view::npos) return whole;
  const std::string_view left = trim(spec.substr(0, dash));
  const std::string_view right = trim(spec.substr(dash + 1));
  if (left.empty()) {  // the last n bytes
    const auto count = number(right);
    if (!count) return whole;
    if (*count == 0 || size == 0) return {416, 0, 0};
    const uint64_t length = std::min(*count, size);
    return {206, size - length, length};
  }
  const auto first = number(left);
  const auto last = right.empty() ? std::optional<uint64_t>(~0ull) : number(right);
  if (!first || !last || *last < *first) return whole;
  if (*first >= size) return {416, 0, 0};
  return {206, *first, std::min(*last, size - 1) - *first + 1};
}

}  // namespace split::http
