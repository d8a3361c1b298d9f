// Reads what PyTorch computed for the models of the tests (tests/golden/README.md).
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/safetensors.h"

namespace split::test {

inline std::string source(const std::string& path) {
  return std::string(SPLIT_SOURCE_DIR) + "/" + path;
}
inline std::string model_dir(const std::string& name) {
  return source(name == "demo" ? "weights/demo" : "tests/golden/" + name);
}

struct GoldenValues {
  explicit GoldenValues(const std::string& name)
      : file(source(name == "demo" ? "tests/golden/demo.safetensors"
                                   : "tests/golden/" + name + "/golden.safetensors")),
        tensors(Safetensors::parse(file.bytes(), name)) {}

  bool has(const std::string& name) const { return tensors.tensors().count(name) != 0; }
  template <typename T>
  std::vector<T> values(const std::string& name) const {
    const auto at = tensors.tensors().find(name);
    CHECK(at != tensors.tensors().end());
    std::vector<T> out(at->second.bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), at->second.bytes.data(), out.size() * sizeof(T));
    return out;
  }
  std::vector<int32_t> ids(int prompt) const { return values<int32_t>(cat("p", prompt, ".ids")); }
  int prompts() const {
    int n = 0;
    while (has(cat("p", n, ".ids"))) ++n;
    return n;
  }

  MappedFile file;
  Safetensors tensors;
};

// |got - expected| / |expected|
inline double relative(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{got[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace split::test
