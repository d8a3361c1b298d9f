#include "text/utf8.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace split {

Utf8Char utf8_first(std::string_view text) {
  CHECK(!text.empty());
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Status::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Status::kInvalid, 1, 0};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's bounds exclude overlong forms, surrogates and what is above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, i, 0};
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, i, 0};
    code = code << 6 | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kValid, length, code};
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = utf8_first(text);
    out += c.status == Utf8Status::kValid ? text.substr(0, c.length) : "\xEF\xBF\xBD";
    text.remove_prefix(c.length);
  }
  return out;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return text;
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  return out.append(text, begin);
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out = std::exchange(held_, {});
  out += bytes;
  // A lead byte always starts a character of its own, so the last three bytes decide.
  for (size_t tail = 1; tail <= std::min<size_t>(3, out.size()); ++tail) {
    const Utf8Char c = utf8_first(std::string_view(out).substr(out.size() - tail));
    if (c.status != Utf8Status::kIncomplete) continue;
    held_ = out.substr(out.size() - tail);
    out.erase(out.size() - tail);
    break;
  }
  return out;
}

std::string Utf8Stream::flush() { return std::exchange(held_, {}); }

}  // namespace split
