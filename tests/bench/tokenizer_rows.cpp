#include "bench/tokenizer_rows.h"

#include <random>
#include <unordered_map>

#include "base/json.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

namespace split::bench {
namespace {

constexpr size_t kTokens = 128'000;
constexpr size_t kLongest = 12;  // bytes of a token
constexpr size_t kText = 4 << 20;
constexpr double kLoadGoal = 0.4, kRateGoal = 20;  // seconds, MB/s on one core

// The characters that stand for bytes in tokenizer.json.
std::string byte_character(unsigned byte) {
  const bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
  static const auto codes = [] {
    std::vector<unsigned> all(256);
    for (unsigned b = 0, next = 256; b < 256; ++b) {
      const bool own = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
      all[b] = own ? b : next++;
    }
    return all;
  }();
  const unsigned code = codes[byte];
  if (plain && code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

}  // namespace

std::string random_tokenizer_json(size_t tokens) {
  std::mt19937_64 random(1);
  Json vocab = Json::object(), merges = Json::array();
  std::vector<std::string> letters, all;  // a space may begin a token
  for (unsigned byte = 0; byte < 256; ++byte) {
    vocab.add(byte_character(byte), byte);
    if (byte == ' ' || (byte >= 'a' && byte <= 'z')) letters.push_back(byte_character(byte));
  }
  all = letters;
  std::unordered_map<std::string, size_t> known;
  while (vocab.size() < tokens) {
    const std::string &left = all[random() % all.size()], &right = all[random() % all.size()];
    const std::string both = left + right;
    if (both.size() > kLongest || right.starts_with(letters[0]) || !known.emplace(both, 0).second) {
      continue;
    }
    merges.push_back(Json::array({left, right}));
    vocab.add(both, vocab.size());
    all.push_back(both);
  }
  Json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
  split["pattern"] = {{"Regex", kLlama3Pattern}};
  Json file = {{"version", "1.0"}};
  file["pre_tokenizer"] = {{"type", "Sequence"}};
  file["pre_tokenizer"]["pretokenizers"] = Json::array(
      {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}});
  file["decoder"] = {{"type", "ByteLevel"}};
  file["model"] = {{"type", "BPE"}, {"ignore_merges", true}};
  file["model"]["vocab"] = std::move(vocab);
  file["model"]["merges"] = std::move(merges);
  return file.dump();
}

void measure_tokenizers(const Options& options, Report& report) {
  const std::string file = random_tokenizer_json(kTokens);
  std::optional<Tokenizer> tokenizer;
  std::vector<double> loads, rates;
  std::string text;
  for (unsigned run = 0; run < options.runs; ++run) {
    loads.push_back(timed([&] { tokenizer = Tokenizer::from_tokenizer_json(file); }));
    std::mt19937_64 random(2);
    // Words of a few tokens, of which few are seen often.
    for (text.clear(); text.size() < kText;) {
      const auto far = static_cast<double>(random() % (1 << 20)) / (1 << 20);
      const auto id = 256 + static_cast<int32_t>(far * far * far * (kTokens - 256));
      text += tokenizer->token_bytes(id);
      if (random() % 2 == 0) text += ' ';
    }
    rates.push_back(static_cast<double>(text.size()) /
                    timed([&] { CHECK(!tokenizer->encode(text).empty()); }) / 1e6);
  }
  report.add(cat("tokenizer_", kTokens, "_load"), median(loads), "s", kLoadGoal);
  report.add(cat("tokenizer_", kTokens, "_encode"), median(rates), "MB/s", kRateGoal);
}

}  // namespace split::bench
