// Byte-level BPE: text is cut into pieces (pretokenize.h), each piece's bytes are merged pair by
// pair in the order of the merges file, and what is left are the tokens. Every byte has a token of
// its own, so encode() takes any bytes, UTF-8 or not, and decode() gives exactly these back. The
// ids are those of Hugging Face's tokenizers. This layer knows no model: whether a model has a row
// for an id is the caller's to check.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split {

// Immutable once built: any number of threads may use one object.
class Tokenizer {
 public:
  // From the contents of vocab.json and merges.txt. A token "<|endoftext|>" in the vocabulary is
  // the special token. Throws Error(kInput), "[tokenizer] vocab.json: ...", for files that are
  // damaged or not byte-level BPE.
  static Tokenizer from_vocab_merges(std::string_view vocab_json, std::string_view merges_txt);

  // From the contents of tokenizer.json; its added tokens are special tokens too. Settings under
  // which transformers would encode differently (a normalizer, add_prefix_space, dropout ...) are
  // refused by name; truncation and padding are not encoding and are ignored.
  static Tokenizer from_tokenizer_json(std::string_view json);

  // The ids of any bytes, in time n log n. With `special`, "<|endoftext|>" in the text is the
  // special token, as in transformers; without, it is plain text. Throws Error(kInput) above 1 GiB.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;

  // The exact bytes; special tokens give their text. Throws Error(kInput) for an id outside [0,
  // size()).
  std::string decode(std::span<const int32_t> ids) const;

  // The bytes of one token, valid for the life of this object: often not whole characters, see
  // Utf8Stream. Throws Error(kInput) for an id outside [0, size()).
  std::string_view token_bytes(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  // Bytes of the longest token: a text of n of them has at least n tokens.
  size_t longest() const;
  std::optional<int32_t> end_of_text() const { return end_of_text_; }

 private:
  struct Merge {
    int32_t left, right, result;
  };
  struct Special {
    std::string text;
    int32_t id;
  };
  struct Parts {
    std::vector<std::string> tokens;  // the bytes of each id
    std::vector<Merge> merges;        // lowest rank first
    std::vector<Special> specials;
  };
  struct Scratch;
  struct Files;  // the readers of the two file formats, in tokenizer_files.cpp

  explicit Tokenizer(Parts parts);
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  // The rank of the merge of two tokens, or kNoMerge.
  uint32_t rank_of(int32_t left, int32_t right) const;
  // The first special token in `text` at or after `from` and where it is; nullptr when there is
  // none.
  std::pair<const Special*, size_t> find_special(std::string_view text, size_t from) const;

  struct Ranked {
    int32_t right;
    uint32_t rank;
  };
  std::string bytes_;              // of all tokens, one after the other
  std::vector<uint32_t> offsets_;  // token i is bytes_[offsets_[i], offsets_[i + 1])
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;  // by rank
  // Merges of left token i: by_left_[first_of_left_[i], first_of_left_[i + 1]).
  std::vector<uint32_t> first_of_left_;
  std::vector<Ranked> by_left_;    // ascending `right` within one left token
  std::vector<Special> specials_;  // longest first
  std::array<bool, 256> special_starts_{};
  std::optional<int32_t> end_of_text_;
};

// The tokenizer of a Hugging Face model: of its vocab.json and merges.txt, else of its
// tokenizer.json, else nothing (such a model takes ids only). `names` are the files there are,
// `file` gives the text of one, `where` is for messages. Throws as above, Error(kNotFound) when
// only one of the first two is there and no third.
std::optional<Tokenizer> load_tokenizer(std::span<const std::string> names,
                                        const std::function<std::string(const char*)>& file,
                                        const std::string& where);
// The same of a directory.
std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& dir);

}  // namespace split
