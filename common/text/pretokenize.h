// The pre-tokenizers of byte-level BPE: cut a text into the pieces that merges never cross, exactly
// by the patterns below, in one pass and without a regular expression engine. A byte that is not
// UTF-8 counts as a character that is neither letter, number nor space. The tables are Unicode 14:
// a letter assigned later is not one here.
#pragma once

#include <cstddef>
#include <string_view>

namespace split {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Cut {
  kGpt2,
  kDigitsGpt2,  // single digits are cut out first (SmolLM2, StarCoder)
  kLlama3,
  kQwen2,
  kQwen35  // marks are letters of words
};

enum class CharClass { kOther, kLetter, kNumber, kSpace, kMark };

// \p{L}, \p{M}, \p{N} and \s (the property White_Space).
CharClass char_class(char32_t code);

// The length in bytes of the white space that `text` begins with.
size_t white_length(std::string_view text);
// The length in bytes of `text` without the white space at its end.
size_t length_stripped(std::string_view text);

// The length in bytes of the first piece of `text`, which must not be empty. The next piece starts
// at its end; text before a piece never matters.
size_t first_piece(std::string_view text, Cut cut = Cut::kGpt2);

}  // namespace split
