// Any bytes either are refused with Error(kInput) or are a file whose tensors lie inside it and
// that the writer can write again; and so as a file of weights, with matrices in blocks.
#include <algorithm>

#include "fuzz.h"
#include "io/weight_file.h"
#include "io/write_safetensors.h"

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
  split::fuzz::refused_or([&] {
    const Safetensors::Tensors parsed = split::parse_weight_file(file, "fuzz");
    std::vector<split::NamedTensor> tensors;
    for (const auto& [name, view] : parsed) {
      CHECK(view.bytes.data() >= file.data());
      CHECK(view.bytes.data() + view.bytes.size() <= file.data() + file.size());
      CHECK(split::tensor_bytes(view.dtype, view.dims) == view.bytes.size());
      tensors.push_back({name, view});
    }
    const std::string again = split::write_weight_file(tensors);
    for (const auto& [name, view] : split::parse_weight_file(split::as_bytes_of(again), "again")) {
      CHECK(view.dtype == parsed.at(name).dtype && view.dims == parsed.at(name).dims);
      CHECK(std::ranges::equal(view.bytes, parsed.at(name).bytes));
    }
  });
  return 0;
}
