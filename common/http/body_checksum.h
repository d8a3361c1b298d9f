// A check value of a message, to detect bytes that changed on the way: TCP's checksum misses one
// change in 65,536, and proxies compute it anew. "Split-Check: crc32c=1a2b3c4d": over method,
// target and body of a request; over status and body of an answer to such a request. A peer that
// does not know the header or the algorithm ignores it.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace split::http {

inline constexpr char kCheckHeader[] = "Split-Check";

// `subject`: "POST /v1/..." or "200".
std::string check_of(std::string_view subject, std::string_view body);

void add_check(Headers& fields, std::string_view subject, std::string_view body);

// A message's verdict. kNone: no known value.
enum class Check : uint8_t { kNone, kFits, kDamaged };
Check check(const Headers& fields, std::string_view subject, std::string_view body);

}  // namespace split::http
