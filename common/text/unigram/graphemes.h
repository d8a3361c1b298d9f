// Extended grapheme clusters (UAX 29, Unicode 14), a reader's characters. Rule GB9c, conjoined
// Indic consonants, is left out: it joins clusters of six bytes and more only, which the one
// caller, charsmap.h, takes apart again.
#pragma once

#include <cstddef>
#include <string_view>

namespace split {

// The length in bytes of the first cluster of `text`, which must not be empty and is valid UTF-8.
size_t first_grapheme(std::string_view text);

}  // namespace split
