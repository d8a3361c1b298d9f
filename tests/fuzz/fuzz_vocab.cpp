// Any bytes as vocab.json, tokenizer.json and vocab.txt: refused with Error(kInput), or a tokenizer
// whose ids have a text; that of vocab.json gives back what it is given.
#include "fuzz.h"
#include "text/tokenizer.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto check = [&](const Tokenizer& tokenizer) {
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = true});
    std::string streamed;
    TokenStream stream(tokenizer, true);
    for (const int32_t id : ids) streamed += stream.push(id);
    CHECK(tokenizer.decode(ids, true) == streamed);
  };
  fuzz::refused_or([&] {
    const Tokenizer tokenizer = Tokenizer::from_vocab_merges(text, "");
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  });
  fuzz::refused_or([&] { check(Tokenizer::from_tokenizer_json(text)); });
  fuzz::refused_or([&] { check(Tokenizer::from_vocab_txt(text)); });
  return 0;
}
