#include "io/gguf_tokenizer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/base64.h"
#include "base/json.h"
#include "base/sort.h"
#include "text/pretokenize.h"

namespace split {
namespace {

constexpr uint64_t kMaxTokens = 1 << 20;  // Gemma 3 has 262144
constexpr uint64_t kMaxTokenBytes = 16
                                    << 20;  // limit of all tokens, and of all merges; Gemma 3: 3 MB
constexpr size_t kMaxPairs = 4 << 20;       // for a vocabulary with scores; Gemma: 0.6 million
constexpr std::string_view kSpaceMark = "\u2581";
constexpr const char *kTokens = "tokenizer.ggml.tokens", *kMerges = "tokenizer.ggml.merges",
                     *kTypes = "tokenizer.ggml.token_type", *kScores = "tokenizer.ggml.scores",
                     *kModel = "tokenizer.ggml.model", *kPre = "tokenizer.ggml.pre",
                     *kCharsmap = "tokenizer.ggml.precompiled_charsmap";

enum class Kind { kBytes, kCharacters, kWords, kPieces };

// A pre-tokeniser, by llama.cpp's name.
struct Cutter {
  std::string_view name;
  std::string_view pattern;  // empty: GPT-2's own
  bool digits = false, nfc = false, whole_pieces = false, add_bos = false;
  std::string_view ends = {};  // a token that ends a text beside those of the keys
};
constexpr Cutter kCutters[] = {
    {"gpt-2", ""},
    {"gpt2", ""},
    {"default", ""},
    {"llama-bpe", kLlama3Pattern, false, false, true, true},
    {"llama3", kLlama3Pattern, false, false, true, true},
    {"llama-v3", kLlama3Pattern, false, false, true, true},
    {"qwen2", kQwen2Pattern, false, true},
    {"qwen35", kQwen35Pattern, false, true, false, false, "<|endoftext|>"},
    {"smollm", "", true},
    {"modern-bert", "", false, true, false, true},
};
constexpr Cutter kGemma4 = {.name = "gemma4", .pattern = "", .ends = "<eos>"};

uint64_t total_size(std::span<const std::string_view> texts) {
  return std::accumulate(texts.begin(), texts.end(), uint64_t{0},
                         [](uint64_t sum, std::string_view text) { return sum + text.size(); });
}

class TokenizerWriter {
 public:
  TokenizerWriter(const Gguf& file, Kind kind, const Cutter& cutter)
      : file_(file), kind_(kind), cutter_(cutter), tokens_(file.texts(kTokens, kMaxTokens)) {
    if (total_size(tokens_) > kMaxTokenBytes) refuse_size();
    types_.assign(tokens_.size(), kNormal);
    if (file.has(kTypes)) types_ = file.integers(kTypes, kMaxTokens);
    expect_count(kTypes, types_.size());
    // A matrix's spare rows have no token.
    while (!types_.empty() && types_.back() == kUnused) types_.pop_back();
    tokens_.resize(types_.size());
  }

  Json json() {
    Json added = Json::array(), vocab = this->vocab(added);
    if (kind_ == Kind::kPieces) vocab = pieces();
    Json json = {{"version", "1.0"}, {"model", model()}};
    json["added_tokens"] = std::move(added);
    json["model"]["vocab"] = std::move(vocab);
    if (kind_ == Kind::kBytes) json["model"]["merges"] = merges();
    if (kind_ == Kind::kCharacters) {
      json["model"]["merges"] = file_.has(kMerges) ? merges() : merges_by_score();
    }
    add_cuts(json);
    add_template(json);
    return json;
  }

  // {"eos_token": "</s>", ...}
  Json names() const {
    Json json = Json::object();
    const std::pair<const char*, const char*> kNames[] = {{"bos_token", "bos_token_id"},
                                                          {"eos_token", "eos_token_id"},
                                                          {"unk_token", "unknown_token_id"},
                                                          {"pad_token", "padding_token_id"}};
    for (const auto& [name, key] : kNames) {
      if (const auto id = token_id(key)) json[name] = std::string(tokens_[*id]);
    }
    return json;
  }

  // {"eos_token_id": [2, ...]}: all ids that end a text.
  Json ends() const {
    Json ids = Json::array();
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      if (const auto id = token_id(key)) ids.push_back(*id);
    }
    const auto end = std::ranges::find(tokens_, cutter_.ends);
    const auto id = static_cast<uint64_t>(end - tokens_.begin());
    if (end != tokens_.end() && types_[id] == kControl && token_id("eos_token_id") != id) {
      ids.push_back(id);
    }
    return {{"eos_token_id", std::move(ids)}};
  }

 private:
  enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

  [[noreturn]] void refuse_size() const {
    file_.refuse(cat("the tokenizer: expected at most ", kMaxTokenBytes, " bytes of tokens"));
  }
  void expect_count(const char* key, size_t count) const {
    if (count == tokens_.size()) return;
    file_.refuse(cat(key, ": expected ", tokens_.size(), " of them, got ", count));
  }

  std::optional<uint64_t> token_id(std::string_view name) const {
    const std::string key = cat("tokenizer.ggml.", name);
    if (!file_.has(key)) return std::nullopt;
    const uint64_t id = file_.integer(key, 0, UINT32_MAX);
    return id < tokens_.size() ? std::optional(id) : std::nullopt;  // -1: none
  }

  // Whether a token stands for its own text and is never merged.
  bool is_added(size_t id) const {
    return types_[id] == kControl || types_[id] == kUserDefined ||
           (types_[id] == kUnknown && kind_ != Kind::kBytes);
  }

  // Returns a token in the form of Hugging Face's vocabulary.
  std::string key_of(size_t id) const {
    if (kind_ != Kind::kWords || is_added(id)) return std::string(tokens_[id]);
    // "\u2581" alone is the suffix "##\u2581": no word is empty.
    const bool begins = tokens_[id].starts_with(kSpaceMark) && tokens_[id] != kSpaceMark;
    return begins ? std::string(tokens_[id].substr(kSpaceMark.size())) : cat("##", tokens_[id]);
  }

  Json vocab(Json& added) const {
    Json vocab = Json::object();
    std::unordered_map<std::string, size_t> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (is_added(id)) {
        const bool special = types_[id] != kUserDefined;
        added.push_back({{"id", id}, {"content", tokens_[id]}, {"special", special}});
        if (kind_ == Kind::kBytes) continue;
      }
      std::string key = key_of(id);
      if (!seen.emplace(key, id).second) {
        file_.refuse(cat(kTokens, ": token ", id, " is there twice"));
      }
      vocab.add(std::move(key), id);
    }
    return vocab;
  }

  Json model() const {
    if (kind_ == Kind::kWords) {
      const auto unknown = token_id("unknown_token_id");
      const std::string_view name = unknown ? tokens_[*unknown] : "[UNK]";
      return {{"type", "WordPiece"}, {"unk_token", name}, {"continuing_subword_prefix", "##"}};
    }
    if (kind_ == Kind::kPieces) {
      const auto unknown = token_id("unknown_token_id");
      return {{"type", "Unigram"}, {"unk_id", unknown ? Json(*unknown) : Json()}};
    }
    Json model = {{"type", "BPE"}};
    if (kind_ == Kind::kCharacters) model["byte_fallback"] = true;
    if (cutter_.whole_pieces) model["ignore_merges"] = true;
    return model;
  }

  // Each token with its score.
  Json pieces() const {
    const std::vector<float> scores = file_.floats(kScores, kMaxTokens);
    if (scores.size() < tokens_.size()) expect_count(kScores, scores.size());
    Json pieces = Json::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      pieces.push_back(Json::array({tokens_[id], double{scores[id]}}));
    }
    return pieces;
  }

  Json merges() const {
    Json pairs = Json::array();
    const auto merges = file_.texts(kMerges, kMaxTokens);
    if (total_size(merges) > kMaxTokenBytes) refuse_size();
    for (const std::string_view merge : merges) pairs.push_back(merge);
    return pairs;
  }

  // SentencePiece joins the pair whose token has the best score: each split of a token into two
  // others is a merge, best scores first.
  Json merges_by_score() const {
    const std::vector<float> scores = file_.floats(kScores, kMaxTokens);
    if (scores.size() < tokens_.size()) expect_count(kScores, scores.size());
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kNormal) ids.emplace(tokens_[id], id);
    }
    struct Pair {
      size_t token, cut, left, right;
    };
    std::vector<Pair> pairs;
    for (const auto& [token, id] : ids) {
      for (size_t cut = 1; cut < token.size(); ++cut) {
        if ((token[cut] & 0xC0) == 0x80) continue;  // inside a character
        const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
        if (left == ids.end() || right == ids.end()) continue;
        pairs.push_back({id, cut, left->second, right->second});
        if (pairs.size() > kMaxPairs) file_.refuse(cat(kTokens, ": too many ways to cut them"));
      }
    }
    sort_stably(pairs, [&](const Pair& a, const Pair& b) {
      if (scores[a.token] != scores[b.token]) return scores[a.token] > scores[b.token];
      return std::tie(b.cut, a.token) < std::tie(a.cut, b.token);
    });
    Json merges = Json::array();
    for (const Pair& pair : pairs) {
      merges.push_back(Json::array({tokens_[pair.left], tokens_[pair.right]}));
    }
    return merges;
  }

  void add_cuts(Json& json) const {
    switch (kind_) {
      case Kind::kBytes:
        return add_byte_cuts(json);
      case Kind::kCharacters:
        return add_marks(json);
      case Kind::kPieces:
        return add_piece_cuts(json);
      case Kind::kWords:
        json["normalizer"] = {{"type", "BertNormalizer"}, {"lowercase", !has_capitals()}};
        json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
        json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    }
  }

  void add_byte_cuts(Json& json) const {
    const bool own = cutter_.pattern.empty();
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", own}};
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", cutter_.pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    json["pre_tokenizer"] = bytes;
    if (!own || cutter_.digits) {
      json["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", Json::array({own ? digits : split, bytes})}};
    }
    if (cutter_.nfc) json["normalizer"] = {{"type", "NFC"}};
    json["decoder"] = {{"type", "ByteLevel"}};
  }

  void add_marks(Json& json) const {
    const bool prefix = file_.flag("tokenizer.ggml.add_space_prefix", true);
    Json before = Json::array(), behind = Json::array();
    if (prefix) before.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    before.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
    behind.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
    behind.push_back({{"type", "ByteFallback"}});
    behind.push_back({{"type", "Fuse"}});
    if (prefix) {
      behind.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(before)}};
    json["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(behind)}};
  }

  // SentencePiece's own: a charsmap, and one mark before each word.
  void add_piece_cuts(Json& json) const {
    const bool prefix = file_.flag("tokenizer.ggml.add_space_prefix", true);
    const Json marks = {{"type", "Metaspace"},
                        {"replacement", kSpaceMark},
                        {"prepend_scheme", prefix ? "always" : "never"},
                        {"split", true}};
    Json cuts = Json::array();
    if (file_.flag("tokenizer.ggml.remove_extra_whitespaces", true) && prefix) {
      cuts.push_back({{"type", "WhitespaceSplit"}});
    }
    cuts.push_back(marks);
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(cuts)}};
    json["decoder"] = marks;
    if (!file_.has(kCharsmap)) return;
    std::string text;
    Base64 base64(text);
    base64.add(file_.bytes(kCharsmap, kMaxTokenBytes));
    base64.finish();
    json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", text}};
  }

  // The file does not say whether case counts: a vocabulary that has none does.
  bool has_capitals() const {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kNormal &&
          std::ranges::any_of(tokens_[id], [](char c) { return c >= 'A' && c <= 'Z'; })) {
        return true;
      }
    }
    return false;
  }

  void add_template(Json& json) const {
    const bool words = kind_ == Kind::kWords || kind_ == Kind::kPieces;
    const bool begins =
        file_.flag("tokenizer.ggml.add_bos_token", kind_ != Kind::kBytes || cutter_.add_bos);
    const bool ends = file_.flag("tokenizer.ggml.add_eos_token", words);
    std::optional<uint64_t> before = token_id("bos_token_id"), behind = token_id("eos_token_id");
    if (words && token_id("cls_token_id")) before = token_id("cls_token_id");
    if (words && token_id("seperator_token_id")) behind = token_id("seperator_token_id");
    Json parts = Json::array(), tokens = Json::object();
    const auto add = [&](uint64_t id) {
      const std::string name(tokens_[id]);
      parts.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
      tokens[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
    };
    if (begins && before) add(*before);
    parts.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (ends && behind) add(*behind);
    if (tokens.empty()) return;
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", std::move(parts)},
                              {"special_tokens", std::move(tokens)}};
  }

  const Gguf& file_;
  const Kind kind_;
  const Cutter& cutter_;
  std::vector<std::string_view> tokens_;
  std::vector<int32_t> types_;
};

// Returns a tokenizer's kind by llama.cpp's names; nullopt for an unknown one.
std::optional<TokenizerWriter> writer_of(const Gguf& file, bool gpt2) {
  if (!file.has(kTokens)) return std::nullopt;
  const std::string_view model = file.text(kModel);
  const std::string_view pre = file.has(kPre) ? file.text(kPre) : "default";
  if (gpt2 && model != "gpt2") {
    file.refuse(cat(kModel, ": expected \"gpt2\", got ", shown(model)));
  }
  if (model == "llama") return TokenizerWriter(file, Kind::kCharacters, kCutters[0]);
  if (model == "gemma4") return TokenizerWriter(file, Kind::kCharacters, kGemma4);
  if (model == "bert") return TokenizerWriter(file, Kind::kWords, kCutters[0]);
  if (model == "t5") return TokenizerWriter(file, Kind::kPieces, kCutters[0]);
  const auto found = std::ranges::find(kCutters, pre, &Cutter::name);
  // A model without a pre-tokeniser is GPT-2, or was converted wrongly.
  const bool known = found != std::end(kCutters) && model == "gpt2" &&
                     (gpt2 ? found->pattern.empty() && !found->digits : pre != "default");
  if (known) return TokenizerWriter(file, Kind::kBytes, *found);
  if (gpt2) file.refuse(cat(kPre, ": expected \"gpt-2\", got ", shown(pre)));
  return std::nullopt;
}

}  // namespace

std::string gguf_json_text(const Gguf& file, const Json& json, const char* what) {
  try {
    return json.dump({.refuse_bytes = true});
  } catch (const Error&) {
    file.refuse(cat(what, ": is not UTF-8"));
  }
}

std::map<std::string, std::string> gguf_text_files(const Gguf& file, bool gpt2) {
  std::map<std::string, std::string> files;
  std::optional<TokenizerWriter> writer = writer_of(file, gpt2);
  if (!writer) return files;
  files["tokenizer.json"] = gguf_json_text(file, writer->json(), "the tokenizer");
  files["tokenizer_config.json"] = gguf_json_text(file, writer->names(), "the tokenizer");
  files["generation_config.json"] = writer->ends().dump();
  const char* const kTemplate = "tokenizer.chat_template";
  if (file.has(kTemplate)) files["chat_template.jinja"] = file.text(kTemplate);
  return files;
}

}  // namespace split
