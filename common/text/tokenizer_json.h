// A tokenizer.json: a list of components, each of which is known by its name and settings or is
// refused. tokenizer_json.cpp reads most, unigram/unigram_json.cpp Unigram.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_files.h"

namespace split {

struct Tokenizer::JsonFile {
  static constexpr const char* kName = "tokenizer.json";

  const Json& file;
  const Json& model;
  Parts parts;
  Files::Index index;

  // A member of an object; null when it is not there.
  static const Json& member(const Json& object, const char* name) {
    static const Json null;
    const Json* found = object.find(name);
    return found == nullptr ? null : *found;
  }
  static bool is_type(const Json& component, const char* type) {
    return member(component, "type") == type;
  }
  // {"String": ...} or {"Regex": ...}
  static std::string_view pattern_of(const Json& component, const char* kind) {
    const Json& pattern = member(component, "pattern");
    const Json& text = pattern.is_object() ? member(pattern, kind) : pattern;
    return text.is_string() ? std::string_view(text.text()) : std::string_view();
  }

  template <typename... Args>
  [[noreturn]] static void fail(const Args&... what) {
    Files::fail(kName, ": ", what...);
  }
  [[noreturn]] static void unsupported(const std::string& where, const Json& value) {
    fail(where, " is not supported: ", Files::quoted(value));
  }
  static void expect(const Json& object, const std::string& where, const char* name,
                     std::initializer_list<Json> accepted) {
    const Json& value = member(object, name);
    if (value.is_null()) return;
    if (std::find(accepted.begin(), accepted.end(), value) == accepted.end()) {
      unsupported(where + name, value);
    }
  }

  // normalizer, pre_tokenizer and so on: null or an object.
  static const Json& section(const Json& file, const char* name) {
    const Json& value = member(file, name);
    if (!value.is_null() && !value.is_object()) {
      fail(name, ": expected an object, got ", Files::quoted(value));
    }
    return value;
  }

  // The components of a section: a Sequence's in turn, or the only one.
  std::vector<const Json*> components(const char* name, const char* list) const {
    const Json& value = section(file, name);
    if (value.is_null()) return {};
    if (!is_type(value, "Sequence")) return {&value};
    std::vector<const Json*> all;
    if (!member(value, list).is_array()) unsupported(name, value);
    for (const Json& one : member(value, list)) {
      if (!one.is_object()) unsupported(name, value);
      all.push_back(&one);
    }
    return all;
  }

  // Reads Unigram's vocabulary in other models' form, {"piece": id}, and scores by id.
  Json pieces_by_id(std::vector<double>* scores) const;
  // Reads Unigram's normaliser, cuts and decoder. Called when parts has its tokens.
  void read_pieces(std::vector<double> scores);
  static std::string byte_key(size_t byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    return {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
  }
  // Reads the ids of the tokens of 256 bytes, <0x00> and on.
  void read_byte_ids() {
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::string key = byte_key(byte);
      const auto found = index.find(key);
      if (found == index.end()) fail("model.byte_fallback: ", key, " is not in the vocabulary");
      parts.byte_ids[byte] = Files::id_of(*found->second, Files::kMaxTokens, kName);
    }
  }
};

}  // namespace split
