// What the tests of text/ share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace split {

using Ids = std::vector<int32_t>;

// The message of the Error(kind) that `call` throws.
template <typename Call>
std::string message_of(Call&& call, ErrorKind kind = ErrorKind::kInput) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

// Strings of characters of every class, and of what the pre-tokenizer's pattern names.
class RandomText {
 public:
  explicit RandomText(unsigned seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }  // not quite even, the same everywhere

  std::string characters(size_t most) {
    static const char* const pool[] = {
        "a",      "b",      "Z",      "é",      "ß",      "Ω",          "я",    "中",
        "あ",     "𝔸",      "ª",      "ʰ",      "अ",      "ा",          "́",     "1",
        "9",      "²",      "½",      "Ⅷ",      "٣",      "𝟘",          "㉈",   "!",
        ".",      "-",      "_",      "'",      "'",      "\"",         "—",    "€",
        "😀",      "\x01",   "\u200B", "\uFEFF", "\uFFFD", "\U0010FFFF", " ",    " ",
        " ",      "\t",     "\n",     "\r",     "\v",     "\f",         "\x1C", "\u0085",
        "\u00A0", "\u1680", "\u2003", "\u2028", "\u202F", "\u3000",     "'s",   "'t",
        "'re",    "'ve",    "'m",     "'ll",    "'d",     "'S",         "s",    "t",
        "re",     "ve",     "m",      "ll",     "d",      "'l",         "'r",   "the",
        " a"};
    std::string text;
    for (size_t n = below(most + 1); n > 0; --n) text += pool[below(std::size(pool))];
    return text;
  }
  std::string bytes(size_t most) {
    std::string text;
    for (size_t n = below(most + 1); n > 0; --n) text += static_cast<char>(below(256));
    return text;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace split
