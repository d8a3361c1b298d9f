// Any bytes either are refused with Error(kInput) or are a file whose tensors lie inside it and
// whose model, tokenizer and configuration the layers above can read or refuse.
#include "fuzz.h"
#include "io/gguf_model.h"
#include "models/model.h"
#include "text/tokenizer.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file = std::as_bytes(std::span(data, size));
  fuzz::refused_or([&] {
    const Gguf parsed = Gguf::parse(file, "fuzz");
    for (const auto& [name, tensor] : parsed.tensors()) {
      CHECK(tensor.bytes.data() >= file.data());
      CHECK(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
      CHECK(element_count(tensor.dims).has_value());
    }
    const GgufModel model = read_gguf_model(parsed);
    for (const auto& [name, view] : model.tensors) {
      CHECK(tensor_bytes(view.dtype, view.dims) == view.bytes.size());
    }
    fuzz::refused_or([&] { make_model(model.config_json); });
    if (model.texts.contains("tokenizer.json")) {
      fuzz::refused_or([&] { Tokenizer::from_tokenizer_json(model.texts.at("tokenizer.json")); });
    }
  });
  return 0;
}
