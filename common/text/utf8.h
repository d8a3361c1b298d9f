// UTF-8 from untrusted sources: every byte sequence is legal input, and invalid bytes are
// distinguished from a cut-off character. "Valid" is RFC 3629: no overlong forms, no surrogates,
// nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace split {

enum class Utf8Status { kValid, kInvalid, kIncomplete };

struct Utf8Char {
  Utf8Status status;
  size_t length;  // bytes, at least 1; of an invalid or cut-off character, the longest part that
                  // could start one
  char32_t code;  // 0 unless valid
};

// The character that `text`, which must not be empty, starts with.
Utf8Char utf8_first(std::string_view text);

// `text` with each invalid or cut-off part replaced by U+FFFD (one for each maximal part, as the
// Unicode standard, section 3.9, recommends): fit for JSON.
std::string to_valid_utf8(std::string_view text);

// `text` with each `from`, which must not be empty, replaced by `to`.
std::string replaced(std::string text, std::string_view from, std::string_view to);

// Cuts a stream of bytes so that no character is split between two outputs. Bytes that are not
// UTF-8 pass unchanged; only a suffix that may still become a character (at most 3 bytes) is held
// back. One thread at a time.
class Utf8Stream {
 public:
  // Returns all held bytes and `bytes`, without an incomplete character at the end.
  std::string push(std::string_view bytes);
  // Returns the held bytes at the end of the stream, complete or not.
  std::string flush();

 private:
  std::string held_;
};

}  // namespace split
