// Any bytes as a charsmap, and some as a text: refused with Error(kInput), or a text of valid
// UTF-8.
#include "fuzz.h"
#include "text/unigram/charsmap.h"
#include "text/utf8.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all = fuzz::text_of(data, size), text = all.substr(0, size / 8);
  fuzz::refused_or([&] {
    const std::string out = Charsmap(all.substr(text.size())).apply(to_valid_utf8(text));
    CHECK(to_valid_utf8(out) == out);
  });
  return 0;
}
