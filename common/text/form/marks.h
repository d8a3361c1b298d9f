// White space and half marks in the texts of a form.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace split {

inline constexpr std::string_view kFormSpaces = " \t\n\r";

inline bool is_form_space(char c) { return kFormSpaces.find(c) != kFormSpaces.npos; }

inline std::string without_spaces(std::string text) {
  std::erase_if(text, is_form_space);
  return text;
}

// Offsets at which the words of a text begin and end.
inline size_t first_word(std::string_view text) {
  return std::min(text.find_first_not_of(kFormSpaces), text.size());
}
inline size_t behind_words(std::string_view text) { return text.find_last_not_of(kFormSpaces) + 1; }

// Bytes at the end of `text` that may become `mark`.
inline size_t half_mark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - std::min<size_t>(1, mark.size())); n > 0;
       --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace split
