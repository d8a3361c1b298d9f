// A check value of a message, so that bytes that changed on their way are no other message: TCP's
// own finds all but one in 65,536, and proxies compute it anew. "Split-Check: crc32c=1a2b3c4d": of
// the method, the target and the body of a request; of the status and the body of an answer to such
// a request. Who does not know the algorithm, or the header, takes the message as it is.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace split::http {

inline constexpr char kCheckHeader[] = "Split-Check";

// `subject`: "POST /v1/..." or "200".
std::string check_of(std::string_view subject, std::string_view body);

void add_check(Headers& fields, std::string_view subject, std::string_view body);

// A message's verdict. kNone: it has no value that is known here.
enum class Check : uint8_t { kNone, kFits, kDamaged };
Check check(const Headers& fields, std::string_view subject, std::string_view body);

}  // namespace split::http
