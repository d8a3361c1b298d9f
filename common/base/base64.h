// Base64 (RFC 4648, with padding): encodes bytes that come in pieces, decodes a whole text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace split {

// Appends to a text.
class Base64 {
 public:
  explicit Base64(std::string& out) : out_(out) {}
  void add(Bytes bytes);
  void finish();

 private:
  std::string& out_;
  uint32_t bits_ = 0;
  int count_ = 0;
};

// Decodes a text; nullopt if it is not Base64 (white space is not).
std::optional<std::string> from_base64(std::string_view text);

}  // namespace split
