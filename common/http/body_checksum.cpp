#include "http/body_checksum.h"

#include <cstdio>

#include "base/crc32c.h"

namespace split::http {
namespace {

constexpr std::string_view kAlgorithm = "crc32c=";

}  // namespace

std::string check_of(std::string_view subject, std::string_view body) {
  uint32_t value = crc32c(as_bytes_of(subject));
  value = crc32c(as_bytes_of("\n"), value);
  value = crc32c(as_bytes_of(body), value);
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return cat(kAlgorithm, digits);
}

void add_check(Headers& fields, std::string_view subject, std::string_view body) {
  fields.set(kCheckHeader, check_of(subject, body));
}

Check check(const Headers& fields, std::string_view subject, std::string_view body) {
  const auto value = fields.get(kCheckHeader);
  if (!value || !value->starts_with(kAlgorithm)) return Check::kNone;
  return *value == check_of(subject, body) ? Check::kFits : Check::kDamaged;
}

}  // namespace split::http
