// A tokenizer with the parts of Hugging Face's: added tokens are cut out of a text, each stretch
// between them is normalised, cut into pieces (pretokenize.h), and each piece becomes ids; a
// template may put more before and behind. There are four kinds. Byte-level BPE has a token for
// each byte, so that it takes any bytes and gives exactly these back. BPE of characters
// (SentencePiece's) has spaces as part of its tokens and bytes for unknown characters. WordPiece
// takes the longest parts of words from the left. Unigram takes the tokens whose scores add up to
// the most. Knows no model: the caller checks whether a model has a row for an id.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/pretokenize.h"

namespace split {

class MemoryShare;
class Unigram;

struct EncodeOptions {
  bool add_special = false;   // the template's tokens around a text: BOS, [CLS] and [SEP]
  bool parse_special = true;  // recognises special tokens in the text; else they are plain text
  // kBreak bytes in the text are not part of it: no special token goes across one.
  bool breaks = false;
  MemoryShare* memory = nullptr;  // pays for the ids and the scratch before they are made
};
inline constexpr char kBreak = '\xFF';                    // no byte of UTF-8
inline constexpr std::string_view kSpaceMark = "\u2581";  // SentencePiece's space

// Immutable once built: any number of threads may use one object.
class Tokenizer {
 public:
  // From the contents of vocab.json and merges.txt, cut like GPT-2's. A token "<|endoftext|>" in
  // the vocabulary is the special token. Throws Error(kInput), "[tokenizer] vocab.json: ...", for
  // files that are damaged or not byte-level BPE.
  static Tokenizer from_vocab_merges(std::string_view vocab_json, std::string_view merges_txt);

  // From the contents of tokenizer.json. Refuses an unknown part by its name, since the ids would
  // differ; ignores truncation and padding, which are not encoding.
  static Tokenizer from_tokenizer_json(std::string_view json);

  // From BERT's vocab.txt; `config_json`, tokenizer_config.json or nothing, may say that case or
  // accents stay.
  static Tokenizer from_vocab_txt(std::string_view vocab_txt, std::string_view config_json = {});

  // The ids of any bytes, in time n log n. Throws Error(kInput) above 1 GiB.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  // Adds no tokens; `special` is options.parse_special.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const {
    return encode(text, EncodeOptions{.parse_special = special});
  }
  // The ids that add_special puts around a text.
  std::span<const int32_t> before() const { return file_.before; }
  std::span<const int32_t> behind() const { return file_.behind; }
  // The ids between the two texts of a pair; none if the file has no template for pairs.
  std::span<const int32_t> between() const { return file_.between; }

  // The text of a sequence, from its beginning; with skip_special, without special tokens. Ids at
  // and above size() have no text. Throws Error(kInput) for an id below 0.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The bytes of one token behind others, valid for the life of this object: often not whole
  // characters, see Utf8Stream. Throws the errors of decode().
  std::string_view token_bytes(int32_t id) const;
  // The bytes of one that begins a text, whose leading space may be left out.
  std::string_view first_bytes(int32_t id) const;

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  // Bytes of the longest token: a text of n of them has at least n tokens.
  size_t longest() const { return longest_; }
  // Whether a normaliser may drop or shorten a text, so that longest() says nothing about it.
  bool may_shorten() const { return file_.kind == Kind::kWords || file_.kind == Kind::kPieces; }
  std::optional<int32_t> end_of_text() const { return end_of_text_; }
  bool is_special(int32_t id) const;
  // The id of a special or other added token with this text.
  std::optional<int32_t> added_id(std::string_view text) const;
  // The tokens that are text and not special, in the order of their bytes. Found on the first call.
  struct InOrder {
    int32_t id;
    uint32_t shared;  // bytes at its begin that the one before has too
    uint32_t own;     // bytes behind these
  };
  struct ByBytes {
    std::vector<InOrder> tokens;
    std::string own;  // `own` bytes of all tokens, read from front to back
  };
  const ByBytes& by_bytes() const;
  // Returns `text` with breaks, so that no special token is read in it or across its end.
  std::string broken(std::string_view text) const;

 private:
  enum class Kind : uint8_t { kBytes, kCharacters, kWords, kPieces };
  enum class Prefix : uint8_t { kNone, kEach, kFirst, kUnlessSpace };
  struct Merge {
    int32_t left, right, result;
  };
  struct Added {
    std::string text;
    int32_t id;
    bool special = true;
    bool takes_left = false, takes_right = false;  // white space beside it
  };
  struct Words {  // BERT's normaliser and WordPiece
    bool clean = true, spaced_ideographs = true, no_accents = true, lower_case = true;
    size_t longest_word = 100;  // characters
    int32_t unknown = 0;
    std::string prefix = "##";  // before a token that goes on a word
    bool clean_up = true;       // no spaces before punctuation when decoding
  };
  // The contents of a file. Tokens are as in token_bytes(), WordPiece's before the clean-up.
  struct Parts {
    Kind kind = Kind::kBytes;
    std::vector<std::string> tokens;      // each id's bytes; WordPiece's words have a space
    std::vector<bool> plain;              // tokens that a text's pieces may become; empty: all
    std::array<int32_t, 256> byte_ids{};  // kCharacters
    std::vector<Merge> merges;            // lowest rank first
    std::vector<Added> added;             // by text, once it is built
    std::vector<int32_t> before, behind, between;
    Cut cut = Cut::kGpt2;
    bool nfc = false;
    bool whole_pieces = false;  // a piece that is a token stays whole, whatever the merges
    Prefix prefix = Prefix::kNone;
    bool strip = false;  // drops the first space of a decoded text
    Words words;
    std::shared_ptr<const Unigram> pieces;
  };
  struct Scratch;
  struct Files;       // the readers of vocabularies and merges, in tokenizer_files.cpp
  struct JsonFile;    // a tokenizer.json, in tokenizer_json.h
  struct JsonReader;  // its reader, in tokenizer_json.cpp

  explicit Tokenizer(Parts parts);
  void index_merges();
  void index_tokens(const std::vector<bool>& plain);
  void index_added();
  void clean_up_words();
  std::string_view raw(int32_t id) const;
  // The id of a token of the vocabulary with these bytes, or -1.
  int32_t id_of(std::string_view token) const;
  // `first`: the stretch begins its text.
  void encode_stretch(std::string_view text, bool first, Scratch& scratch,
                      std::vector<int32_t>& ids) const;
  void encode_bytes(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_characters(std::string_view text, bool first, Scratch& scratch,
                         std::vector<int32_t>& ids) const;
  std::vector<char32_t> normalized_words(std::string_view text) const;
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, size_t characters, std::vector<int32_t>& ids) const;
  // Merges the symbols of scratch.ids, and appends the remaining ones.
  void merge(Scratch& scratch, std::vector<int32_t>& ids) const;
  // The rank of the merge of two tokens, or kNoMerge.
  uint32_t rank_of(int32_t left, int32_t right) const;
  // The longest added token at the start of `text`, or null. Without `special`, special tokens are
  // not found.
  const Added* added_at(std::string_view text, bool special) const;

  struct Ranked {
    int32_t right;
    uint32_t rank;
  };
  Parts file_;                     // without its tokens
  std::string bytes_;              // all tokens, one after the other
  std::vector<uint32_t> offsets_;  // token i is bytes_[offsets_[i], offsets_[i + 1])
  std::unordered_map<char32_t, int32_t> character_ids_;
  // Merges of left token i: by_left_[first_of_left_[i], first_of_left_[i + 1]).
  std::vector<uint32_t> first_of_left_;
  std::vector<Ranked> by_left_;  // ascending `right` within one left token
  std::vector<int32_t> slots_;   // an open hash table of ids by their bytes
  size_t longest_ = 1;
  std::unordered_map<int32_t, std::string> clean_;  // tokens that the clean-up changes
  std::array<bool, 256> added_starts_{};
  std::vector<int32_t> special_ids_;  // ascending
  std::optional<int32_t> end_of_text_;
  struct Order;
  std::shared_ptr<Order> order_;  // for by_bytes()
};

// Gives the text of a sequence token by token; joined, it is decode() of the tokens. One thread at
// a time; the tokenizer outlives it.
class TokenStream {
 public:
  // `begun`: the tokens follow others.
  explicit TokenStream(const Tokenizer& tokenizer, bool skip_special = false, bool begun = false)
      : tokenizer_(&tokenizer), skip_(skip_special), begun_(begun) {}
  // Valid for the life of the tokenizer.
  std::string_view push(int32_t id);

 private:
  const Tokenizer* tokenizer_;
  bool skip_, begun_;
};

// The tokenizer of a Hugging Face model: from tokenizer.json, else from vocab.json and merges.txt,
// else from vocab.txt, else nothing (such a model takes ids only). `names` are the files there are,
// `file` gives the text of one, `where` is for messages. Throws as above, Error(kNotFound) when
// only one of vocab.json and merges.txt is there and no other.
std::optional<Tokenizer> load_tokenizer(std::span<const std::string> names,
                                        const std::function<std::string(const char*)>& file,
                                        const std::string& where);
// Loads the tokenizer of a directory.
std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& dir);

// The files of a tokenizer, of which load_tokenizer() reads some.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "vocab.json", "merges.txt",
                                                  "vocab.txt", "tokenizer_config.json"};

}  // namespace split
