#include "text/tokenizer_json.h"

#include "base/resources/fibres.h"
#include "text/unicode.h"
#include "text/unigram/unigram.h"
#include "text/utf8.h"

namespace split {
struct Tokenizer::JsonReader : JsonFile {
  explicit JsonReader(const Json& json) : JsonFile{json, model_of(json), {}, {}} {}

  static const Json& model_of(const Json& file) {
    if (!file.is_object()) fail("expected an object, got ", Files::quoted(file));
    const Json& model = section(file, "model");
    const Json& type = model.is_null() ? model : member(model, "type");
    if (type == "Unigram") return model;
    const bool words = type == "WordPiece";
    // Files before 2020 name no type.
    if (model.is_null() || !(type.is_null() || type == "BPE" || words)) {
      fail("model: expected BPE, WordPiece or Unigram, got ", Files::quoted(type));
    }
    if (!member(model, "vocab").is_object() || !(words || member(model, "merges").is_array())) {
      fail("model: expected ", words ? "a vocab" : "a vocab and merges", ", got ",
           Files::quoted(type));
    }
    return model;
  }

  // Reads byte-level BPE: [Split by a known pattern or Digits,] ByteLevel.
  void read_bytes() {
    const auto normalizers = components("normalizer", "normalizers");
    for (const Json* one : normalizers) {
      if (!is_type(*one, "NFC")) unsupported("normalizer", file["normalizer"]);
      parts.nfc = true;
    }
    const auto cuts = components("pre_tokenizer", "pretokenizers");
    const Json& cut = section(file, "pre_tokenizer");
    if (cuts.empty() || !is_type(*cuts.back(), "ByteLevel")) {
      fail("pre_tokenizer: expected ByteLevel, got ", Files::quoted(cut));
    }
    expect(*cuts.back(), "pre_tokenizer.", "add_prefix_space", {false});
    const bool by_pattern = cuts.size() == 2 && is_type(*cuts[0], "Split");
    expect(*cuts.back(), "pre_tokenizer.", "use_regex", {!by_pattern});
    if (by_pattern && member(*cuts.back(), "use_regex").is_null()) {
      unsupported("pre_tokenizer", cut);
    }
    if (cuts.size() == 1) {
      parts.cut = Cut::kGpt2;
    } else if (cuts.size() == 2 && is_type(*cuts[0], "Digits")) {
      if (member(*cuts[0], "individual_digits") != true) unsupported("pre_tokenizer", cut);
      parts.cut = Cut::kDigitsGpt2;
    } else if (by_pattern) {
      read_pattern(*cuts[0]);
    } else {
      unsupported("pre_tokenizer", cut);
    }
    if (const Json& decoder = section(file, "decoder"); !decoder.is_null()) {
      expect(decoder, "decoder.", "type", {"ByteLevel"});
    }
    expect(model, "model.", "byte_fallback", {false});
    parts.whole_pieces = member(model, "ignore_merges") == true;
  }

  void read_pattern(const Json& split) {
    const std::string_view pattern = pattern_of(split, "Regex");
    const auto one_of = [&](std::string_view known, Cut cut) {
      if (pattern == known) parts.cut = cut;
      return pattern == known;
    };
    if (!one_of(kGpt2Pattern, Cut::kGpt2) && !one_of(kLlama3Pattern, Cut::kLlama3) &&
        !one_of(kQwen2Pattern, Cut::kQwen2) && !one_of(kQwen35Pattern, Cut::kQwen35)) {
      fail("pre_tokenizer: the pattern ", Files::quoted(Json(pattern)),
           " is not known: expected that of GPT-2, Llama 3, Qwen2 or Qwen3.5");
    }
    expect(split, "pre_tokenizer.", "behavior", {"Isolated"});
    expect(split, "pre_tokenizer.", "invert", {false});
  }

  static bool turns_spaces(const Json& replace) {
    return is_type(replace, "Replace") && pattern_of(replace, "String") == " " &&
           member(replace, "content") == kSpaceMark;
  }

  // Reads SentencePiece's BPE: spaces become U+2581, one may be put before.
  void read_characters() {
    bool marked = false;
    for (const Json* one : components("normalizer", "normalizers")) {
      if (is_type(*one, "Prepend") && member(*one, "prepend") == kSpaceMark && !marked) {
        parts.prefix = Prefix::kEach;
      } else if (turns_spaces(*one)) {
        marked = true;
      } else {
        unsupported("normalizer", file["normalizer"]);
      }
    }
    const auto cuts = components("pre_tokenizer", "pretokenizers");
    const bool metaspace = cuts.size() == 1 && is_type(*cuts[0], "Metaspace");
    if (metaspace && parts.prefix == Prefix::kNone) {
      read_metaspace(*cuts[0]);
    } else if (!marked || cuts.size() > 1 ||
               (cuts.size() == 1 &&  // no space is left for it
                !(is_type(*cuts[0], "Split") && pattern_of(*cuts[0], "String") == " "))) {
      unsupported("pre_tokenizer", section(file, "pre_tokenizer"));
    }
    read_decoders();
    expect(model, "model.", "ignore_merges", {false});
    read_byte_ids();
  }

  void read_metaspace(const Json& metaspace) {
    const std::string where = "pre_tokenizer.";
    expect(metaspace, where, "replacement", {Json(kSpaceMark)});
    expect(metaspace, where, "prepend_scheme", {"first", "always", "never"});
    if (member(metaspace, "split") != false)
      unsupported(where + "split", member(metaspace, "split"));
    const Json& scheme = member(metaspace, "prepend_scheme");
    if (scheme.is_null()) unsupported("pre_tokenizer", metaspace);
    parts.prefix = scheme == "first"    ? Prefix::kFirst
                   : scheme == "always" ? Prefix::kUnlessSpace
                                        : Prefix::kNone;
  }

  void read_decoders() {
    const auto decoders = components("decoder", "decoders");
    const Json& whole = section(file, "decoder");
    if (decoders.size() < 3 || decoders.size() > 4 || !is_type(*decoders[0], "Replace") ||
        pattern_of(*decoders[0], "String") != kSpaceMark ||
        member(*decoders[0], "content") != " " || !is_type(*decoders[1], "ByteFallback") ||
        !is_type(*decoders[2], "Fuse")) {
      unsupported("decoder", whole);
    }
    if (decoders.size() == 3) return;
    const Json& strip = *decoders[3];
    if (!is_type(strip, "Strip") || member(strip, "content") != " " ||
        member(strip, "start") != 1 || member(strip, "stop") != 0) {
      unsupported("decoder", strip);
    }
    parts.strip = true;
  }

  void read_words() {
    const Json& normalizer = section(file, "normalizer");
    if (!is_type(normalizer, "BertNormalizer")) unsupported("normalizer", normalizer);
    const auto flag = [&](const char* name, bool otherwise) {
      const Json& value = member(normalizer, name);
      return value.is_boolean() ? value.get<bool>() : otherwise;
    };
    Words& words = parts.words;
    words.clean = flag("clean_text", true);
    words.spaced_ideographs = flag("handle_chinese_chars", true);
    words.lower_case = flag("lowercase", true);
    words.no_accents = flag("strip_accents", words.lower_case);
    const auto cuts = components("pre_tokenizer", "pretokenizers");
    if (cuts.size() != 1 || !is_type(*cuts[0], "BertPreTokenizer")) {
      unsupported("pre_tokenizer", section(file, "pre_tokenizer"));
    }
    if (const Json& prefix = member(model, "continuing_subword_prefix"); prefix.is_string()) {
      words.prefix = prefix.text();
    }
    if (words.prefix.empty() || words.prefix.size() > 16 || words.prefix[0] == ' ') {
      unsupported("model.continuing_subword_prefix", member(model, "continuing_subword_prefix"));
    }
    const Json& decoder = section(file, "decoder");
    if (!is_type(decoder, "WordPiece")) unsupported("decoder", decoder);
    expect(decoder, "decoder.", "prefix", {Json(words.prefix)});
    words.clean_up = member(decoder, "cleanup") != false;
    constexpr uint64_t kMostCharacters = 1000;  // a word's time is their number's square
    const Json& most = member(model, "max_input_chars_per_word");
    if (!most.is_null()) {
      if (!most.is_number_unsigned() || most.get<uint64_t>() > kMostCharacters) {
        unsupported("model.max_input_chars_per_word", most);
      }
      words.longest_word = most.get<size_t>();
    }
    const Json& unknown = member(model, "unk_token");
    const auto found = index.find(unknown.is_string() ? unknown.text() : "[UNK]");
    if (found == index.end()) fail("model.unk_token is not in the vocabulary");
    words.unknown = Files::id_of(*found->second, index.size() + Files::kMaxAdded, kName);
  }

  void check_added(const Json& added) const {
    const char* const where = "added_tokens: ";
    if (!added.is_array() || added.size() > Files::kMaxAdded) {
      fail(where, "expected a list of at most ", Files::kMaxAdded, ", got ", Files::quoted(added));
    }
    for (const Json& token : added) {
      if (!token.is_object() || !member(token, "content").is_string() ||
          !member(token, "id").is_number_unsigned()) {
        fail(where, "expected objects with id and content, got ", Files::quoted(token));
      }
      const auto& text = token["content"].text();
      if (text.empty() || text.size() > Files::kMaxToken) {
        fail(where, "expected 1 to ", Files::kMaxToken, " bytes of content, got ", text.size());
      }
      expect(token, where, "single_word", {false});
    }
  }

  // Called when `pieces` is whole.
  void check_normalized(const Json& added) const {
    for (const Json& token : added) {
      if (member(token, "normalized") == true && !stays(token["content"].text())) {
        fail("added_tokens: ", Files::quoted(token["content"]),
             ": normalized is not supported where the normalizer changes it");
      }
    }
  }

  // Whether the normaliser leaves a text as it is.
  bool stays(const std::string& text) const {
    switch (parts.kind) {
      case Kind::kBytes:
        return !parts.nfc || nfc(text) == text;
      case Kind::kCharacters:
        return parts.prefix != Prefix::kEach && text.find(' ') == text.npos;
      case Kind::kWords:
        return !parts.words.lower_case;
      case Kind::kPieces:
        return parts.pieces->keeps(text);
    }
    return false;
  }

  std::string read_key(std::string_view key, int32_t id,
                       const std::unordered_set<std::string_view>& added) {
    parts.plain[static_cast<size_t>(id)] = true;
    if (parts.kind == Kind::kWords) return Files::word_of(key, parts.words.prefix);
    if (parts.kind == Kind::kBytes) {
      // An added token may have characters that stand for no byte.
      const std::string bytes = Files::bytes_of(key);
      const bool own = bytes.empty() && added.contains(key);
      return own ? std::string(key) : Files::bytes_or_fail(key, kName, id);
    }
    const bool bytes = parts.kind == Kind::kCharacters || member(model, "byte_fallback") == true;
    for (size_t byte = 0; bytes && key.size() == 6 && key.starts_with("<0x") && byte < 256;
         ++byte) {
      if (parts.byte_ids[byte] != id) continue;
      parts.plain[static_cast<size_t>(id)] = false;
      return {static_cast<char>(byte)};
    }
    return replaced(std::string(key), kSpaceMark, " ");
  }

  // The bytes that an added token stands for in a decoded text.
  std::string added_bytes(const std::string& text) const {
    if (parts.kind == Kind::kWords) return Files::word_of(text, parts.words.prefix);
    return parts.kind == Kind::kBytes ? text : replaced(text, kSpaceMark, " ");
  }

  void read_added(const Json& added, size_t count) {
    std::unordered_set<std::string_view> seen;
    for (const Json& token : added) {
      const auto& text = token["content"].text();
      const int32_t id = Files::id_of(token["id"], count, kName);
      if (!seen.insert(text).second) {
        fail("added_tokens: ", Files::quoted(token["content"]), " is there twice");
      }
      const auto in_vocab = index.find(text);
      std::string& bytes = parts.tokens[static_cast<size_t>(id)];
      std::string own = added_bytes(text);
      // A token in the vocabulary has its id there, and stands for its own text.
      if (in_vocab != index.end() ? in_vocab->second->get<int32_t>() != id || bytes != own
                                  : !bytes.empty()) {
        fail("added_tokens: ", Files::quoted(token["content"]), ": the id ", id, " is not its own");
      }
      bytes = std::move(own);
      parts.added.push_back({text, id, member(token, "special") != false,
                             member(token, "lstrip") == true, member(token, "rstrip") == true});
    }
  }

  void read_merges() {
    const Json& merges = model["merges"];
    for (size_t i = 0; i < merges.size(); ++i) {
      fibres::yield();
      const Json& merge = merges[i];
      if (merge.is_string()) {
        Files::add_merge_line(index, merge.text(), kName, i + 1, parts);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        Files::add_merge(index, merge[0].text(), merge[1].text(), kName, i + 1, parts);
      } else {
        fail("merge ", i + 1, ": expected two strings, got ", Files::quoted(merge));
      }
    }
  }

  void read_after(size_t count) {
    for (const Json* one : components("post_processor", "processors")) {
      if (is_type(*one, "ByteLevel")) continue;  // changes offsets only
      const bool bert = is_type(*one, "BertProcessing") || is_type(*one, "RobertaProcessing");
      if (!bert && !is_type(*one, "TemplateProcessing")) {
        expect(*one, "post_processor.", "type", {});
        unsupported("post_processor", *one);
      }
      if (!parts.before.empty() || !parts.behind.empty()) {
        unsupported("post_processor", section(file, "post_processor"));
      }
      if (bert) {
        parts.before = {pair_id(*one, "cls", count)};
        parts.behind = {pair_id(*one, "sep", count)};
        parts.between.assign(is_type(*one, "RobertaProcessing") ? 2 : 1, parts.behind[0]);
      } else {
        read_template(*one, count);
      }
    }
  }

  // Reads ["[CLS]", 101].
  static int32_t pair_id(const Json& bert, const char* name, size_t count) {
    const Json& pair = member(bert, name);
    if (!pair.is_array() || pair.size() != 2) unsupported("post_processor", bert);
    return Files::id_of(pair[1], count, kName);
  }

  // The ids before, between and behind the texts of a template; nothing if it is of another form.
  static std::vector<std::vector<int32_t>> template_ids(const Json& list, const Json& tokens,
                                                        size_t texts, size_t count) {
    std::vector<std::vector<int32_t>> ids_of(1);
    for (const Json& part : list.is_array() ? list : Json::array()) {
      if (member(part, "Sequence").is_object()) {
        ids_of.emplace_back();
        continue;
      }
      const Json& special = member(part, "SpecialToken");
      const Json& name = special.is_object() ? member(special, "id") : special;
      const Json* token = name.is_string() ? tokens.find(name.text()) : nullptr;
      const Json& ids = token == nullptr ? name : member(*token, "ids");
      if (token == nullptr || !ids.is_array()) return {};
      for (const Json& id : ids) ids_of.back().push_back(Files::id_of(id, count, kName));
    }
    return ids_of.size() == texts + 1 ? ids_of : std::vector<std::vector<int32_t>>();
  }

  void read_template(const Json& after, size_t count) {
    const Json& tokens = member(after, "special_tokens");
    const auto single = template_ids(member(after, "single"), tokens, 1, count);
    if (single.empty()) unsupported("post_processor.single", member(after, "single"));
    parts.before = single[0];
    parts.behind = single[1];
    const auto pair = template_ids(member(after, "pair"), tokens, 2, count);
    if (!pair.empty() && pair[0] == single[0] && pair[2] == single[1]) parts.between = pair[1];
  }

  Tokenizer read() {
    const bool words = is_type(model, "WordPiece"), pieces = is_type(model, "Unigram");
    std::vector<double> scores;
    const Json by_id = pieces ? pieces_by_id(&scores) : Json();
    const Json& vocab = pieces ? by_id : model["vocab"];
    index = Files::index_of(vocab);
    parts.kind = words                                    ? Kind::kWords
                 : pieces                                 ? Kind::kPieces
                 : member(model, "byte_fallback") == true ? Kind::kCharacters
                                                          : Kind::kBytes;
    if (!words && !pieces) {
      expect(model, "model.", "dropout", {0});
      expect(model, "model.", "continuing_subword_prefix", {""});
      expect(model, "model.", "end_of_word_suffix", {""});
    }
    if (words) read_words();
    if (parts.kind == Kind::kCharacters) read_characters();
    if (parts.kind == Kind::kBytes) read_bytes();
    if (pieces && member(model, "byte_fallback") == true) read_byte_ids();
    const Json& listed = member(file, "added_tokens");
    const Json added = listed.is_null() ? Json::array() : listed;
    check_added(added);
    size_t count = vocab.size();
    std::unordered_set<std::string_view> added_texts;
    for (const Json& token : added) {
      const std::string& text = token["content"].text();
      count += index.contains(text) ? 0 : 1;
      added_texts.insert(text);
    }
    parts.plain.resize(std::min(count, Files::kMaxTokens));
    Files::read_vocab(
        vocab, count, kName,
        [&](std::string_view key, int32_t id) { return read_key(key, id, added_texts); }, parts);
    if (pieces) read_pieces(std::move(scores));
    check_normalized(added);
    read_added(added, count);
    if (parts.kind == Kind::kBytes) Files::add_end_of_text(index, parts);
    if (!words && !pieces) read_merges();
    read_after(count);
    if (words && static_cast<size_t>(parts.words.unknown) >= count) {
      fail("model.unk_token: its id is not below ", count);
    }
    return Tokenizer(std::move(parts));
  }
};

Tokenizer Tokenizer::from_tokenizer_json(std::string_view json) {
  const Json file = Files::parse(json, JsonFile::kName, Files::kMaxTokenizerJson);
  return JsonReader(file).read();
}

}  // namespace split
