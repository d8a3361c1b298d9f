// Any bytes as vocab.json and as tokenizer.json: refused with Error(kInput), or a tokenizer that
// gives back what it is given.
#include "fuzz.h"
#include "text/tokenizer.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto check = [&](const Tokenizer& tokenizer) {
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  };
  fuzz::refused_or([&] { check(Tokenizer::from_vocab_merges(text, "")); });
  fuzz::refused_or([&] { check(Tokenizer::from_tokenizer_json(text)); });
  return 0;
}
