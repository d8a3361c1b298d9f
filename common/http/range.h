// Finds the bytes of a body of known size that a request selects (RFC 9110, sections 13 and 14), as
// a pure function.
#pragma once

#include <cstdint>
#include <string_view>

#include "http/message.h"

namespace split::http {

struct Selection {
  int status = 200;    // 200 everything, 206 a part, 304 the client has it, 416 no such bytes
  uint64_t first = 0;  // set for 200 and 206
  uint64_t length = 0;
};

// Returns one range, cut to the size; everything for several ranges, or an unknown Range. `etag`:
// strong and quoted, or empty. Range counts for GET only, If-None-Match for GET and HEAD.
Selection select_bytes(std::string_view method, const Headers& headers, std::string_view etag,
                       uint64_t size);

}  // namespace split::http
