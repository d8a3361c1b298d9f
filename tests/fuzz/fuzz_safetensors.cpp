// Any bytes either are refused with Error(kInput) or are a file whose tensors lie inside it and
// that the writer can write again.
#include "fuzz.h"
#include "io/safetensors.h"

using split::Bytes;
using split::Safetensors;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file = std::as_bytes(std::span(data, size));
  split::fuzz::refused_or([&] {
    const Safetensors parsed = Safetensors::parse(file, "fuzz");
    uint64_t total = 0;
    std::vector<split::NamedTensor> tensors;
    for (const auto& [name, view] : parsed.tensors()) {
      CHECK(view.bytes.data() >= file.data());
      CHECK(view.bytes.data() + view.bytes.size() <= file.data() + file.size());
      CHECK(split::element_count(view.dims).value() * split::dtype_size(view.dtype) ==
            view.bytes.size());
      total += view.bytes.size();
      tensors.push_back({name, view});
    }
    CHECK(8 + split::load_le64(file.data()) + total == size);
    const std::string again = split::write_safetensors(tensors, parsed.metadata());
    CHECK(Safetensors::parse(split::as_bytes_of(again), "again").tensors().size() ==
          tensors.size());
  });
  return 0;
}
