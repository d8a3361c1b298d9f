// Reading vocab.json, merges.txt and tokenizer.json. They come from anywhere: every field is
// checked, and no content of a file is repeated in a message but JSON values, escaped and cut
// short.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace split {

struct Tokenizer::Files {
  static constexpr size_t kMaxFile = 16
                                     << 20;  // bytes; a tokenizer.json of 50257 tokens has 1.4 MB
  static constexpr size_t kMaxTokens = 1 << 20;  // 50257 are usual
  static constexpr size_t kMaxToken = 1024;      // bytes; the longest of 50257 has 128
  static constexpr size_t kMaxAdded = 256;
  static constexpr int kMaxDepth = 32;

  template <typename... Args>
  [[noreturn]] static void fail(const Args&... what) {
    throw Error(ErrorKind::kInput, cat("[tokenizer] ", what...));
  }

  static std::string quoted(const Json& value) {
    std::string text = value.dump({.ascii = true});
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }

  static Json parse(std::string_view text, const char* file) {
    if (text.size() > kMaxFile) {
      fail(file, ": expected at most ", kMaxFile, " bytes, got ", text.size());
    }
    return parse_json(text, kMaxDepth, cat("[tokenizer] ", file));
  }

  // A vocabulary by its keys, each of which the merges look up some times.
  using Index = std::unordered_map<std::string_view, const Json*>;
  static Index index_of(const Json& vocab) {
    Index index;
    index.reserve(vocab.size());
    for (const auto& [key, value] : vocab.members()) index.emplace(key, &value);
    return index;
  }

  // The byte that each of the 256 characters of byte-level BPE stands for: printable Latin-1 for
  // itself, the others from U+0100 on.
  static int byte_of(char32_t code) {
    static const std::array<int, 324> bytes = [] {
      std::array<int, 324> table{};
      table.fill(-1);
      size_t next = 256;
      for (int byte = 0; byte < 256; ++byte) {
        const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        table[itself ? static_cast<size_t>(byte) : next++] = byte;
      }
      return table;
    }();
    return code < bytes.size() ? bytes[code] : -1;
  }

  static std::string bytes_of(std::string_view key, const char* file, int32_t id) {
    if (key.empty()) fail(file, ": token ", id, " is empty");
    std::string bytes;
    while (!key.empty()) {
      const Utf8Char c = utf8_first(key);  // valid: it comes from JSON
      const int byte = byte_of(c.code);
      if (byte < 0) {
        fail(file, ": token ", id, ": U+", Hex{c.code},
             " is not one of the 256 characters that stand for bytes");
      }
      bytes += static_cast<char>(byte);
      key.remove_prefix(c.length);
    }
    if (bytes.size() > kMaxToken) {
      fail(file, ": token ", id, ": expected at most ", kMaxToken, " bytes, got ", bytes.size());
    }
    return bytes;
  }

  static int32_t id_of(const Json& id, size_t count, const char* file) {
    if (!id.is_number_unsigned()) fail(file, ": expected a token id, got ", quoted(id));
    if (id.get<uint64_t>() >= count) {
      fail(file, ": token ids: expected 0 to ", count - 1, " without holes, got ", quoted(id));
    }
    return id.get<int32_t>();
  }

  // Gives each token its place; `count` is of all tokens, those of the vocabulary and those added.
  static void read_vocab(const Json& vocab, size_t count, const char* file, Parts& parts) {
    if (count == 0) fail(file, ": no tokens");
    if (count > kMaxTokens) {
      fail(file, ": expected at most ", kMaxTokens, " tokens, got ", count);
    }
    parts.tokens.resize(count);
    for (const auto& [key, value] : vocab.members()) {
      const int32_t id = id_of(value, count, file);
      std::string& token = parts.tokens[static_cast<size_t>(id)];
      if (!token.empty()) fail(file, ": two tokens have the id ", id);
      token = bytes_of(key, file, id);
    }
  }

  static void add_merge(const Index& vocab, const std::string& left, const std::string& right,
                        const char* file, size_t number, Parts& parts) {
    if (parts.merges.size() == kMaxTokens) fail(file, ": more than ", kMaxTokens, " merges");
    const auto id = [&](const std::string& part, const char* which) {
      const auto found = vocab.find(part);
      if (found == vocab.end()) {
        fail(file, ": merge ", number, ": its ", which, " is not in the vocabulary");
      }
      return found->second->get<int32_t>();
    };
    parts.merges.push_back(
        {id(left, "left part"), id(right, "right part"), id(left + right, "result")});
  }

  // "left right", as a line of merges.txt or an entry of tokenizer.json.
  static void add_merge_line(const Index& vocab, std::string_view line, const char* file,
                             size_t number, Parts& parts) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      fail(file, ": merge ", number, ": expected two parts with one space between them");
    }
    add_merge(vocab, std::string(line.substr(0, space)), std::string(line.substr(space + 1)), file,
              number, parts);
  }

  static void read_merges_txt(const Index& vocab, std::string_view text, Parts& parts) {
    const char* const file = "merges.txt";
    if (text.size() > kMaxFile) {
      fail(file, ": expected at most ", kMaxFile, " bytes, got ", text.size());
    }
    if (text.starts_with("#version"))
      text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    for (size_t number = 1; !text.empty(); ++number) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() && text.empty()) break;
      add_merge_line(vocab, line, file, number, parts);
    }
  }

  static void read_merges_json(const Index& vocab, const Json& merges, Parts& parts) {
    const char* const file = "tokenizer.json";
    for (size_t i = 0; i < merges.size(); ++i) {
      const Json& merge = merges[i];
      if (merge.is_string()) {
        add_merge_line(vocab, merge.text(), file, i + 1, parts);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        add_merge(vocab, merge[0].text(), merge[1].text(), file, i + 1, parts);
      } else {
        fail(file, ": merge ", i + 1, ": expected two strings, got ", quoted(merge));
      }
    }
  }

  // A member of an object; null when it is not there.
  static const Json& member(const Json& object, const char* name) {
    static const Json null;
    const Json* found = object.find(name);
    return found == nullptr ? null : *found;
  }

  static void expect(const Json& object, const char* where, const char* name,
                     std::initializer_list<Json> accepted) {
    const Json& value = member(object, name);
    if (value.is_null()) return;
    if (std::find(accepted.begin(), accepted.end(), value) == accepted.end()) {
      fail("tokenizer.json: ", where, name, " is not supported: ", quoted(value));
    }
  }

  // normalizer, pre_tokenizer and so on: null or an object.
  static const Json& section(const Json& file, const char* name) {
    const Json& value = member(file, name);
    if (!value.is_null() && !value.is_object()) {
      fail("tokenizer.json: ", name, ": expected an object, got ", quoted(value));
    }
    return value;
  }

  static void check_settings(const Json& file, const Json& model) {
    if (!section(file, "normalizer").is_null()) {
      fail("tokenizer.json: normalizer is not supported: ", quoted(file["normalizer"]));
    }
    const Json& cut = section(file, "pre_tokenizer");
    if (cut.is_null() || member(cut, "type") != "ByteLevel") {
      fail("tokenizer.json: pre_tokenizer: expected ByteLevel, got ", quoted(cut));
    }
    expect(cut, "pre_tokenizer.", "add_prefix_space", {false});
    expect(cut, "pre_tokenizer.", "use_regex", {true});
    if (const Json& after = section(file, "post_processor"); !after.is_null()) {
      expect(after, "post_processor.", "type", {"ByteLevel"});  // it changes offsets only
    }
    if (const Json& decoder = section(file, "decoder"); !decoder.is_null()) {
      expect(decoder, "decoder.", "type", {"ByteLevel"});
    }
    expect(model, "model.", "dropout", {0});
    expect(model, "model.", "continuing_subword_prefix", {""});
    expect(model, "model.", "end_of_word_suffix", {""});
    expect(model, "model.", "byte_fallback", {false});
    expect(model, "model.", "ignore_merges", {false});
  }

  static const Json& model_of(const Json& file) {
    if (!file.is_object()) fail("tokenizer.json: expected an object, got ", quoted(file));
    const Json& model = section(file, "model");
    // Files of before 2020 name no type.
    if (model.is_null() || (model.contains("type") && model["type"] != "BPE") ||
        !member(model, "vocab").is_object() || !member(model, "merges").is_array()) {
      fail("tokenizer.json: model: expected BPE with a vocab and merges, got ",
           quoted(model.is_null() ? model : member(model, "type")));
    }
    return model;
  }

  static void check_added(const Json& added) {
    const char* const where = "tokenizer.json: added_tokens: ";
    if (!added.is_array() || added.size() > kMaxAdded) {
      fail(where, "expected a list of at most ", kMaxAdded, ", got ", quoted(added));
    }
    for (const Json& token : added) {
      if (!token.is_object() || !member(token, "content").is_string() ||
          !member(token, "id").is_number_unsigned()) {
        fail(where, "expected objects with id and content, got ", quoted(token));
      }
      const auto& text = token["content"].text();
      if (text.empty() || text.size() > kMaxToken) {
        fail(where, "expected 1 to ", kMaxToken, " bytes of content, got ", text.size());
      }
      for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
        expect(token, "added_tokens: ", flag, {false});
      }
    }
  }

  static Tokenizer read(const Json& file) {
    const char* const name = "tokenizer.json";
    const Json& model = model_of(file);
    check_settings(file, model);
    const Json& vocab = model["vocab"];
    const Json& listed = member(file, "added_tokens");
    const Json added = listed.is_null() ? Json::array() : listed;
    check_added(added);
    const Index index = index_of(vocab);
    size_t count = vocab.size();
    for (const Json& token : added) {
      count += index.contains(token["content"].text()) ? 0 : 1;
    }
    Parts parts;
    read_vocab(vocab, count, name, parts);
    for (const Json& token : added) {
      const auto& text = token["content"].text();
      const int32_t id = id_of(token["id"], count, name);
      const auto same = [&](const Special& special) { return special.text == text; };
      if (std::any_of(parts.specials.begin(), parts.specials.end(), same)) {
        fail(name, ": added_tokens: ", quoted(text), " is there twice");
      }
      const auto in_vocab = index.find(text);
      std::string& bytes = parts.tokens[static_cast<size_t>(id)];
      // One that is in the vocabulary has its id, and stands for its own text there too.
      if (in_vocab != index.end() ? in_vocab->second->get<int32_t>() != id || bytes != text
                                  : !bytes.empty()) {
        fail(name, ": added_tokens: ", quoted(text), ": the id ", id, " is not its own");
      }
      bytes = text;
      parts.specials.push_back({text, id});
    }
    add_end_of_text(index, parts);
    read_merges_json(index, model["merges"], parts);
    return Tokenizer(std::move(parts));
  }

  // transformers makes it special wherever the vocabulary has it.
  static void add_end_of_text(const Index& vocab, Parts& parts) {
    const std::string text = "<|endoftext|>";
    const auto found = vocab.find(text);
    const auto same = [&](const Special& special) { return special.text == text; };
    if (found == vocab.end() || std::any_of(parts.specials.begin(), parts.specials.end(), same)) {
      return;
    }
    parts.specials.push_back({text, found->second->get<int32_t>()});
  }
};

Tokenizer Tokenizer::from_vocab_merges(std::string_view vocab_json, std::string_view merges_txt) {
  const Json vocab = Files::parse(vocab_json, "vocab.json");
  if (!vocab.is_object()) {
    Files::fail("vocab.json: expected an object, got ", Files::quoted(vocab));
  }
  Parts parts;
  Files::read_vocab(vocab, vocab.size(), "vocab.json", parts);
  const Files::Index index = Files::index_of(vocab);
  Files::add_end_of_text(index, parts);
  Files::read_merges_txt(index, merges_txt, parts);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_tokenizer_json(std::string_view json) {
  return Files::read(Files::parse(json, "tokenizer.json"));
}

std::optional<Tokenizer> load_tokenizer(std::span<const std::string> names,
                                        const std::function<std::string(const char*)>& file,
                                        const std::string& where) {
  const auto present = [&](const char* name) {
    return std::ranges::find(names, name) != names.end();
  };
  const bool vocab = present("vocab.json"), merges = present("merges.txt");
  if (vocab && merges) {
    const std::string vocab_json = file("vocab.json");
    return Tokenizer::from_vocab_merges(vocab_json, file("merges.txt"));
  }
  if (present("tokenizer.json")) return Tokenizer::from_tokenizer_json(file("tokenizer.json"));
  if (vocab || merges) {
    throw Error(ErrorKind::kNotFound,
                cat("[tokenizer] ", where, ": ", vocab ? "vocab.json" : "merges.txt", " without ",
                    vocab ? "merges.txt" : "vocab.json"));
  }
  return std::nullopt;
}

std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& dir) {
  constexpr uint64_t kLimit = 16 << 20;
  std::vector<std::string> names;
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json"}) {
    std::error_code ignored;  // what cannot be looked at is not there
    if (std::filesystem::exists(dir / name, ignored)) names.push_back(name);
  }
  return load_tokenizer(
      names, [&](const char* name) { return read_file(dir / name, kLimit); }, dir.string());
}

}  // namespace split
