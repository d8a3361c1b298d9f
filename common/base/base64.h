// Base64 of bytes that come in pieces (RFC 4648, with padding).
#pragma once

#include <string>

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

}  // namespace split
