// text/utf8: bytes that are none, and text that comes in pieces.
#include <gtest/gtest.h>

#include "text/utf8.h"
#include "text_testing.h"

namespace split {
namespace {

TEST(Utf8, ReplacesWhatIsNotUtf8) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(to_valid_utf8("aé中😀\0"), "aé中😀\0");
  EXPECT_EQ(to_valid_utf8("\xFFx\x80"), r + "x" + r);
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(to_valid_utf8("\xE0\x80\xAF"), r + r + r);          // overlong
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xE4\xB8"), r);                      // cut off
  EXPECT_EQ(to_valid_utf8("\xE4\xB8x"), r + "x");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(to_valid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                          "b\x80"
                          "c\x80\xBF"
                          "d"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
}

TEST(Utf8, StreamHoldsBackIncompleteCharactersOnly) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE4"), "a");
  EXPECT_EQ(stream.push("\xB8"), "");
  EXPECT_EQ(stream.push("\xAD\xF0\x9F\x98"), "中");
  EXPECT_EQ(stream.push("\x80\xC3"), "😀");
  EXPECT_EQ(stream.push("x"), "\xC3x");
  EXPECT_EQ(stream.push("\xFF"), "\xFF");
  EXPECT_EQ(stream.push("\x80\x80\x80\x80"), "\x80\x80\x80\x80");
  EXPECT_EQ(stream.push("\xE0\x80"), "\xE0\x80");  // can no longer become a character
  EXPECT_EQ(stream.push("\xED\xA0"), "\xED\xA0");
  EXPECT_EQ(stream.push("\xF4\x8F\xBF"), "");
  EXPECT_EQ(stream.flush(), "\xF4\x8F\xBF");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8, StreamNeverSplitsACharacterAndLosesNothing) {
  RandomText random(5);
  for (int i = 0; i < 20'000; ++i) {
    const bool valid = i % 2 == 0;
    const std::string text = valid ? random.characters(20) : random.bytes(20);
    Utf8Stream stream;
    std::string whole;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random.below(4);
      const std::string out = stream.push(std::string_view(text).substr(at, n));
      at += n;
      if (valid) {
        ASSERT_EQ(to_valid_utf8(out), out);
      }
      whole += out;
      ASSERT_GE(whole.size() + 3, std::min(at, text.size()));
    }
    if (valid) {
      ASSERT_EQ(whole, text);
    }
    ASSERT_EQ(whole + stream.flush(), text);
  }
}

TEST(Utf8, StreamsEveryTokenOfTheVocabulary) {
  Utf8Stream stream;
  std::string out, all;
  for (int32_t id = 0; id < demo().size(); ++id) {
    const std::string_view bytes = demo().token_bytes(id);
    ASSERT_FALSE(bytes.empty());
    all += bytes;
    out += stream.push(bytes);
    ASSERT_NO_THROW((void)Json(to_valid_utf8(bytes)).dump());
  }
  EXPECT_EQ(out + stream.flush(), all);
}

}  // namespace
}  // namespace split
