// Reading vocab.json, merges.txt and vocab.txt.
#include "text/tokenizer_files.h"

#include <algorithm>

#include "base/file.h"
#include "base/resources/fibres.h"
#include "text/utf8.h"

namespace split {

std::string Tokenizer::Files::quoted(const Json& value) {
  std::string text = value.dump({.ascii = true});
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

Json Tokenizer::Files::parse(std::string_view text, const char* file, size_t most) {
  if (text.size() > most) fail(file, ": expected at most ", most, " bytes, got ", text.size());
  return parse_json(text, kMaxDepth, cat("[tokenizer] ", file));
}

Tokenizer::Files::Index Tokenizer::Files::index_of(const Json& vocab) {
  Index index;
  index.reserve(vocab.size());
  for (const auto& [key, value] : vocab.members()) index.emplace(key, &value);
  return index;
}

namespace {

// The byte that each of the 256 characters of byte-level BPE stands for: printable Latin-1 for
// itself, the others from U+0100 on.
int byte_of(char32_t code) {
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

}  // namespace

std::string Tokenizer::Files::bytes_of(std::string_view key) {
  std::string bytes;
  while (!key.empty()) {
    const Utf8Char c = utf8_first(key);  // valid: it comes from JSON
    const int byte = byte_of(c.code);
    if (byte < 0) return {};
    bytes += static_cast<char>(byte);
    key.remove_prefix(c.length);
  }
  return bytes;
}

std::string Tokenizer::Files::bytes_or_fail(std::string_view key, const char* file, int32_t id) {
  std::string bytes = bytes_of(key);
  while (bytes.empty() && !key.empty()) {
    const Utf8Char c = utf8_first(key);
    if (byte_of(c.code) < 0) {
      fail(file, ": token ", id, ": U+", Hex{c.code},
           " is not one of the 256 characters that stand for bytes");
    }
    key.remove_prefix(c.length);
  }
  return bytes;
}

int32_t Tokenizer::Files::id_of(const Json& id, size_t count, const char* file) {
  if (!id.is_number_unsigned()) fail(file, ": expected a token id, got ", quoted(id));
  if (id.get<uint64_t>() >= count) {
    fail(file, ": token ids: expected 0 to ", count - 1, " without holes, got ", quoted(id));
  }
  return id.get<int32_t>();
}

void Tokenizer::Files::read_vocab(const Json& vocab, size_t count, const char* file,
                                  const ReadKey& read, Parts& parts) {
  if (count == 0) fail(file, ": no tokens");
  if (count > kMaxTokens) {
    fail(file, ": expected at most ", kMaxTokens, " tokens, got ", count);
  }
  parts.tokens.resize(count);
  for (const auto& [key, value] : vocab.members()) {
    fibres::yield();
    const int32_t id = id_of(value, count, file);
    std::string& token = parts.tokens[static_cast<size_t>(id)];
    if (!token.empty()) fail(file, ": two tokens have the id ", id);
    if (key.empty()) fail(file, ": token ", id, " is empty");
    token = read(key, id);
    if (token.size() > kMaxToken) {
      fail(file, ": token ", id, ": expected at most ", kMaxToken, " bytes, got ", token.size());
    }
  }
}

void Tokenizer::Files::add_merge(const Index& vocab, const std::string& left,
                                 const std::string& right, const char* file, size_t number,
                                 Parts& parts) {
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

void Tokenizer::Files::add_merge_line(const Index& vocab, std::string_view line, const char* file,
                                      size_t number, Parts& parts) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    fail(file, ": merge ", number, ": expected two parts with one space between them");
  }
  add_merge(vocab, std::string(line.substr(0, space)), std::string(line.substr(space + 1)), file,
            number, parts);
}

void Tokenizer::Files::read_merges_txt(const Index& vocab, std::string_view text, Parts& parts) {
  const char* const file = "merges.txt";
  if (text.size() > kMaxFile) {
    fail(file, ": expected at most ", kMaxFile, " bytes, got ", text.size());
  }
  if (text.starts_with("#version"))
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  for (size_t number = 1; !text.empty(); ++number) {
    fibres::yield();
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() && text.empty()) break;
    add_merge_line(vocab, line, file, number, parts);
  }
}

void Tokenizer::Files::add_end_of_text(const Index& vocab, Parts& parts) {
  const std::string text = "<|endoftext|>";
  const auto found = vocab.find(text);
  const auto same = [&](const Added& added) { return added.text == text; };
  if (found == vocab.end() || std::any_of(parts.added.begin(), parts.added.end(), same)) return;
  parts.added.push_back({text, found->second->get<int32_t>()});
}

std::string Tokenizer::Files::word_of(std::string_view key, std::string_view prefix) {
  const bool goes_on = key.starts_with(prefix) && key.size() > prefix.size();
  return goes_on ? std::string(key) : cat(" ", key);
}

Tokenizer Tokenizer::from_vocab_merges(std::string_view vocab_json, std::string_view merges_txt) {
  const char* const name = "vocab.json";
  const Json vocab = Files::parse(vocab_json, name);
  if (!vocab.is_object()) Files::fail(name, ": expected an object, got ", Files::quoted(vocab));
  Parts parts;
  Files::read_vocab(
      vocab, vocab.size(), name,
      [&](std::string_view key, int32_t id) { return Files::bytes_or_fail(key, name, id); }, parts);
  const Files::Index index = Files::index_of(vocab);
  Files::add_end_of_text(index, parts);
  Files::read_merges_txt(index, merges_txt, parts);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_vocab_txt(std::string_view vocab_txt, std::string_view config_json) {
  const char* const name = "vocab.txt";
  if (vocab_txt.size() > Files::kMaxFile) {
    Files::fail(name, ": expected at most ", Files::kMaxFile, " bytes, got ", vocab_txt.size());
  }
  Parts parts;
  parts.kind = Kind::kWords;
  if (!config_json.empty()) {
    const Json config = Files::parse(config_json, "tokenizer_config.json", Files::kMaxFile);
    const auto flag = [&](const char* key, bool otherwise) {
      const Json* value = config.find(key);
      return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
    };
    parts.words.lower_case = flag("do_lower_case", true);
    parts.words.no_accents = flag("strip_accents", parts.words.lower_case);
    parts.words.spaced_ideographs = flag("tokenize_chinese_chars", true);
  }
  std::unordered_map<std::string_view, int32_t> ids;
  while (!vocab_txt.empty()) {
    std::string_view line = vocab_txt.substr(0, vocab_txt.find('\n'));
    vocab_txt.remove_prefix(std::min(line.size() + 1, vocab_txt.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto id = static_cast<int32_t>(parts.tokens.size());
    if (parts.tokens.size() == Files::kMaxTokens) {
      Files::fail(name, ": more than ", Files::kMaxTokens, " tokens");
    }
    if (line.empty() || line.size() >= Files::kMaxToken || to_valid_utf8(line) != line) {
      Files::fail(name, ": line ", id + 1, ": expected a token of UTF-8, got ", line.size(),
                  " bytes");
    }
    if (!ids.emplace(line, id).second) Files::fail(name, ": line ", id + 1, " is there before");
    parts.tokens.push_back(Files::word_of(line, parts.words.prefix));
  }
  const auto id_of = [&](const char* token) {
    const auto found = ids.find(token);
    if (found == ids.end()) Files::fail(name, ": expected a token ", token, ", got none");
    return found->second;
  };
  parts.words.unknown = id_of("[UNK]");
  parts.before = {id_of("[CLS]")};
  parts.behind = parts.between = {id_of("[SEP]")};
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (const auto found = ids.find(token); found != ids.end()) {
      parts.added.push_back({token, found->second});
    }
  }
  return Tokenizer(std::move(parts));
}

std::optional<Tokenizer> load_tokenizer(std::span<const std::string> names,
                                        const std::function<std::string(const char*)>& file,
                                        const std::string& where) {
  const auto present = [&](const char* name) {
    return std::ranges::find(names, name) != names.end();
  };
  // tokenizer.json says how texts are cut, the other files do not.
  if (present("tokenizer.json")) return Tokenizer::from_tokenizer_json(file("tokenizer.json"));
  const std::string config =
      present("tokenizer_config.json") ? file("tokenizer_config.json") : std::string();
  const bool vocab = present("vocab.json"), merges = present("merges.txt");
  if (vocab && merges) {
    if (!config.empty()) {
      const Json json = parse_json(config, 32, "[tokenizer] tokenizer_config.json");
      const Json* name = json.find("tokenizer_class");
      if (name != nullptr && name->is_string() && !name->text().starts_with("GPT2Tokenizer")) {
        throw Error(ErrorKind::kNotFound, cat("[tokenizer] ", where, ": a ", shown(name->text()),
                                              " needs its tokenizer.json, which is not there"));
      }
    }
    const std::string vocab_json = file("vocab.json");
    return Tokenizer::from_vocab_merges(vocab_json, file("merges.txt"));
  }
  if (present("vocab.txt")) return Tokenizer::from_vocab_txt(file("vocab.txt"), config);
  if (vocab || merges) {
    throw Error(ErrorKind::kNotFound,
                cat("[tokenizer] ", where, ": ", vocab ? "vocab.json" : "merges.txt", " without ",
                    vocab ? "merges.txt" : "vocab.json"));
  }
  return std::nullopt;
}

std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& dir) {
  constexpr uint64_t kLimit = 64 << 20;
  std::vector<std::string> names;
  for (const char* name : kTokenizerFiles) {
    if (file_status(dir / name)) names.push_back(name);
  }
  return load_tokenizer(
      names, [&](const char* name) { return read_file(dir / name, kLimit); }, dir.string());
}

}  // namespace split
