// Any bytes as the merges.txt of a vocabulary of all bytes and some pairs of letters: refused with
// Error(kInput), or a tokenizer that gives back what it is given.
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

namespace {

std::string vocabulary() {
  nlohmann::json vocab = nlohmann::json::object();
  int other = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const int code = itself ? byte : other++;
    std::string key(1, static_cast<char>(code));
    if (code >= 0x80) {
      key = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
    vocab[key] = byte;
  }
  for (const char* word : {"ab", "ba", "aa", "bb", "aba", "abab", "aaaa"}) {
    vocab[word] = vocab.size();
  }
  return vocab.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string vocab = vocabulary();
  const std::string_view merges = fuzz::text_of(data, size);
  fuzz::refused_or([&] {
    const Tokenizer tokenizer = Tokenizer::from_vocab_merges(vocab, merges);
    for (const std::string_view text : {std::string_view("abababaabbaaaab"), merges}) {
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  });
  return 0;
}
