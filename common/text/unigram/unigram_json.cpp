// Reading a tokenizer.json whose model is Unigram.
#include <cmath>
#include <optional>
#include <utility>

#include "base/base64.h"
#include "base/resources/fibres.h"
#include "text/tokenizer_json.h"
#include "text/unigram/unigram.h"

namespace split {

Json Tokenizer::JsonFile::pieces_by_id(std::vector<double>* scores) const {
  const Json& vocab = member(model, "vocab");
  if (!vocab.is_array() || vocab.size() == 0 || vocab.size() > Files::kMaxTokens) {
    fail("model.vocab: expected a list of 1 to ", Files::kMaxTokens, " pieces with scores, got ",
         Files::quoted(vocab));
  }
  Json::Object ids;
  std::unordered_set<std::string_view> seen;
  ids.reserve(vocab.size());
  for (size_t id = 0; id < vocab.size(); ++id) {
    fibres::yield();
    const Json& one = vocab[id];
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number() ||
        !std::isfinite(one[1].get<double>())) {
      fail("model.vocab: piece ", id, ": expected a text and a finite score, got ",
           Files::quoted(one));
    }
    if (!seen.insert(one[0].text()).second)
      fail("model.vocab: ", Files::quoted(one[0]), " is there twice");
    ids.push_back({one[0].text(), Json(id)});
    scores->push_back(one[1].get<double>());
  }
  return ids;
}

void Tokenizer::JsonFile::read_pieces(std::vector<double> scores) {
  Unigram::Options options;
  const Json& unknown = member(model, "unk_id");
  if (!unknown.is_number_unsigned() || unknown.get<uint64_t>() >= scores.size()) {
    fail("model.unk_id: expected the id of a piece for what has none, 0 to ", scores.size() - 1,
         ", got ", Files::quoted(unknown));
  }
  options.unknown = unknown.get<int32_t>();
  if (member(model, "byte_fallback") == true)
    options.byte_ids.assign(parts.byte_ids.begin(), parts.byte_ids.end());

  for (const Json* one : components("normalizer", "normalizers")) {
    const bool runs = is_type(*one, "Replace") && pattern_of(*one, "Regex") == " {2,}" &&
                      member(*one, "content") == " ";
    if (is_type(*one, "Precompiled") && !options.charsmap && !options.one_space) {
      const Json& text = member(*one, "precompiled_charsmap");
      const std::optional<std::string> blob =
          text.is_string() ? from_base64(text.text()) : std::nullopt;
      if (!blob)
        fail("normalizer.precompiled_charsmap: expected Base64, got ", Files::quoted(text));
      try {
        options.charsmap.emplace(*blob);
      } catch (const Error& error) {
        fail("normalizer.precompiled_", error.what());
      }
    } else if (is_type(*one, "Strip") && !options.one_space) {
      options.strip_left = member(*one, "strip_left") == true;
      options.strip_right = member(*one, "strip_right") == true;
    } else if (runs) {
      options.one_space = true;
    } else {
      unsupported("normalizer", *one);
    }
  }

  // One rule for marks before and behind.
  using Prefix = Unigram::Options::Prefix;
  const auto prefix_of = [](const Json& metaspace, const std::string& where) {
    expect(metaspace, where, "type", {"Metaspace"});
    expect(metaspace, where, "replacement", {Json(kSpaceMark)});
    expect(metaspace, where, "prepend_scheme", {"first", "always", "never"});
    const Json& scheme = member(metaspace, "prepend_scheme");
    // Files before 2024 have a flag for it.
    const bool none =
        scheme.is_null() ? member(metaspace, "add_prefix_space") == false : scheme == "never";
    return none ? Prefix::kNone : scheme == "first" ? Prefix::kFirst : Prefix::kEach;
  };
  auto cuts = components("pre_tokenizer", "pretokenizers");
  if (cuts.size() == 2 && is_type(*cuts[0], "WhitespaceSplit")) {
    options.words = true;
    cuts.erase(cuts.begin());
  }
  if (cuts.size() != 1 || !is_type(*cuts[0], "Metaspace"))
    unsupported("pre_tokenizer", section(file, "pre_tokenizer"));
  options.prefix = prefix_of(*cuts[0], "pre_tokenizer.");
  options.split = member(*cuts[0], "split") != false;
  const Json& decoder = section(file, "decoder");
  if (!is_type(decoder, "Metaspace")) unsupported("decoder", decoder);
  parts.strip = prefix_of(decoder, "decoder.") != Prefix::kNone;

  // A piece with a plain space is never found: texts have marks alone by then.
  std::vector<std::string> tokens = parts.tokens;
  const Json& vocab = member(model, "vocab");
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!parts.plain[id] || vocab[id][0].text().find(' ') != std::string::npos) tokens[id].clear();
  }
  parts.pieces = std::make_shared<Unigram>(std::move(options), tokens, std::move(scores));
}

}  // namespace split
