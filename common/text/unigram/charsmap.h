// The `Precompiled` normaliser of Hugging Face's tokenizers: SentencePiece's table of texts and
// their replacements, applied as tokenizers does it and not as SentencePiece does. A grapheme
// cluster below six bytes that begins with a text of the table is replaced as a whole by the
// replacement of the shortest; otherwise each of its characters is looked up by itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace split {

class MemoryShare;

class Charsmap {
 public:
  // The blob: the trie's size in bytes, a double-array trie of 32-bit units (darts), and the
  // replacements, each ended by a zero byte. Throws Error(kInput), "charsmap: ...", for a trie that
  // leaves its array or loops, and for replacements that are missing or no UTF-8.
  explicit Charsmap(std::string_view blob);

  // The normalised text; `text` is valid UTF-8. `memory`, if given, pays for bytes beyond its size.
  std::string apply(std::string_view text, MemoryShare* memory = nullptr) const;

 private:
  // Finds the replacement of the shortest text of the table that `text` begins with.
  bool find(std::string_view text, std::string_view* replacement) const;
  void check() const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace split
