// CRC-32C (Castagnoli): finds every burst of up to 32 flipped bits, and all but one in 2^32 of
// other changes. Guards against accidents, not attacks. Source: RFC 3720, section 12.1.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace split {

// Continues `so_far` over these bytes: the result in pieces is that of one call.
uint32_t crc32c(Bytes bytes, uint32_t so_far = 0);

}  // namespace split
