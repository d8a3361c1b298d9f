// Helpers that the fuzz targets share.
#pragma once

#include <string_view>

#include "base/bytes.h"

namespace split::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `read`; the only thing that may come out of it is Error(kInput).
template <typename Read>
void refused_or(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
  }
}

}  // namespace split::fuzz
