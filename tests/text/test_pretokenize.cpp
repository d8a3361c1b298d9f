// text/pretokenize: by hand, and against PCRE2.
#include <gtest/gtest.h>

#include "text/pretokenize.h"
#include "text/utf8.h"
#include "text_testing.h"

#ifdef SPLIT_HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace split {
namespace {

std::vector<std::string> pieces_of(std::string_view text, Cut cut = Cut::kGpt2) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t length = first_piece(text, cut);
    pieces.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

TEST(Pretokenizer, CutsByHand) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("Hello  world's 42 tests!\n\n x"),
            (Pieces{"Hello", " ", " world", "'s", " 42", " tests", "!", "\n\n", " x"}));
  EXPECT_EQ(pieces_of("a \n"), (Pieces{"a", " \n"}));
  EXPECT_EQ(pieces_of("\tx"), (Pieces{"\t", "x"}));
  EXPECT_EQ(pieces_of("'LL 'll ''s '"), (Pieces{"'", "LL", " '", "ll", " ''", "s", " '"}));
  EXPECT_EQ(pieces_of("x\xFF\xE4\xB8 \xFF"), (Pieces{"x", "\xFF\xE4\xB8", " \xFF"}));
}

#ifdef SPLIT_HAVE_PCRE2
// A compiled pattern over UTF-8 with Unicode properties (PCRE2 10.42 has Unicode 14, as our
// tables).
class Pattern {
 public:
  explicit Pattern(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    CHECK(code_ != nullptr);
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pattern() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  // pcre2_match()'s answer at `from`; end() is then where the match ends.
  int match(std::string_view text, size_t from) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, match_, nullptr);
  }
  size_t end() const { return pcre2_get_ovector_pointer(match_)[1]; }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// PCRE2's \s also has U+180E, which lost the property White_Space in Unicode 6.3.
TEST(Pretokenizer, CutsAsPcre2) {
  for (const auto& [text_of, cut] :
       {std::pair{kGpt2Pattern, Cut::kGpt2}, {kQwen35Pattern, Cut::kQwen35}}) {
    Pattern pattern(std::string(text_of).c_str());
    RandomText random(4);
    for (int i = 0; i < 100'000; ++i) {
      const std::string text = random.characters(24);
      std::vector<std::string> expected;
      for (size_t at = 0; at < text.size(); at = pattern.end()) {
        ASSERT_GT(pattern.match(text, at), 0);
        expected.push_back(text.substr(at, pattern.end() - at));
      }
      ASSERT_EQ(pieces_of(text, cut), expected) << to_hex(as_bytes_of(text));
    }
  }
}

TEST(Pretokenizer, ClassifiesEveryCodePointAsPcre2) {
  Pattern pattern(R"((\p{L})|(\p{N})|(\s)|(\p{M}))");
  for (char32_t code = 0; code < 0x110000; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || code == 0x180E) continue;
    std::string text;
    if (code < 0x80) text += static_cast<char>(code);
    if (code >= 0x80 && code < 0x800) text += static_cast<char>(0xC0 | code >> 6);
    if (code >= 0x800 && code < 0x10000) text += static_cast<char>(0xE0 | code >> 12);
    if (code >= 0x10000) text += static_cast<char>(0xF0 | code >> 18);
    for (int shift = code < 0x80 ? 0 : code < 0x800 ? 6 : code < 0x10000 ? 12 : 18; shift > 0;) {
      shift -= 6;
      text += static_cast<char>(0x80 | (code >> shift & 0x3F));
    }
    const int group = std::max(1, pattern.match(text, 0)) - 1;  // 0: none matched
    ASSERT_EQ(static_cast<int>(char_class(code)), group) << std::hex << static_cast<uint32_t>(code);
    const Utf8Char c = utf8_first(text);
    ASSERT_EQ(c.status, Utf8Status::kValid);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
  }
  EXPECT_EQ(char_class(0x180E), CharClass::kOther);
}
#endif

}  // namespace
}  // namespace split
