// The pre-tokenizer of byte-level BPE: cuts a text into the pieces that merges never cross, exactly
// as the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// does, in one pass and without a regular expression engine. A byte that is not UTF-8 counts as a
// character that is neither letter, number nor space. The tables are Unicode 14: a letter assigned
// later is not one here.
#pragma once

#include <cstddef>
#include <string_view>

namespace split {

enum class CharClass { kOther, kLetter, kNumber, kSpace };

// \p{L}, \p{N} and \s (the property White_Space).
CharClass char_class(char32_t code);

// The length in bytes of the first piece of `text`, which must not be empty. The next piece starts
// where it ends; what came before a piece never matters.
size_t first_piece(std::string_view text);

}  // namespace split
