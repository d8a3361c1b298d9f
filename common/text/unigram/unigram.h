// Unigram, SentencePiece's other model: each piece of a text becomes the tokens whose scores add up
// to the most. A text is first normalised and cut into pieces by its file's settings. The results
// equal those of Hugging Face's tokenizers, ties and sums in float64 included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unigram/charsmap.h"

namespace split {

// Immutable once built: any number of threads may use one object.
class Unigram {
 public:
  // How a text becomes pieces, in this order. A space stands for U+2581 in tokens and pieces.
  struct Options {
    std::optional<Charsmap> charsmap;
    bool strip_left = false, strip_right = false;  // white space around the text
    bool one_space = false;                        // in place of a run of spaces
    bool words = false;                            // cut at white space, which is dropped
    enum class Prefix : uint8_t { kNone, kFirst, kEach } prefix = Prefix::kEach;
    bool split = true;  // a piece begins at each space
    int32_t unknown = 0;
    std::vector<int32_t> byte_ids;  // ids of 256 bytes, in place of `unknown`; empty: no such ids
  };
  // `tokens` by id with their scores, in nats; an empty token is never found.
  Unigram(Options options, const std::vector<std::string>& tokens, std::vector<double> scores);

  // Appends the ids of a stretch of text; `first`: it begins the text. `memory`, if given, pays for
  // scratch: 24 bytes for each byte of the longest piece.
  void encode(std::string_view text, bool first, MemoryShare* memory,
              std::vector<int32_t>& ids) const;
  // Whether normalising leaves a text as it is.
  bool keeps(std::string_view text) const;

 private:
  std::string normalized(std::string_view text, MemoryShare* memory) const;
  void encode_piece(std::string_view piece, MemoryShare* memory, std::vector<int32_t>& ids) const;
  // The node below `node` by a byte, or 0.
  uint32_t child(uint32_t node, char byte) const;

  Options options_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  // A trie: the children of node n are [first_child_[n], first_child_[n + 1]), by their bytes.
  std::vector<uint32_t> first_child_;
  std::vector<char> byte_;
  std::vector<int32_t> token_;  // the token that ends at a node, or -1
};

}  // namespace split
