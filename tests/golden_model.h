// A model of the tests with what PyTorch computes for it (tests/golden/README.md), and shards over
// it.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "run/batcher.h"

namespace split::test {

inline std::string source(const std::string& path) {
  return std::string(SPLIT_SOURCE_DIR) + "/" + path;
}

// A checkpoint, its model, and what PyTorch says about it.
struct Golden {
  explicit Golden(const std::string& name)
      : checkpoint(name == "demo" ? source("weights/demo") : source("tests/golden/" + name)),
        model(make_model(checkpoint.config_json())),
        file(source(name == "demo" ? "tests/golden/demo.safetensors"
                                   : "tests/golden/" + name + "/golden.safetensors")),
        tensors(Safetensors::parse(file.bytes(), name)) {}

  template <typename T>
  std::vector<T> values(const std::string& name) const {
    const auto at = tensors.tensors().find(name);
    CHECK(at != tensors.tensors().end());
    std::vector<T> out(at->second.bytes.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), at->second.bytes.data(), at->second.bytes.size());
    return out;
  }
  bool has(const std::string& name) const { return tensors.tensors().count(name) != 0; }
  int prompts() const {
    int n = 0;
    while (has(cat("p", n, ".ids"))) ++n;
    return n;
  }
  WeightSource weights() const { return weights_of(checkpoint, *model); }

  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
  MappedFile file;
  Safetensors tensors;
};

inline ShardOptions options_for(const Model& model, int first, int last) {
  ShardOptions options;
  options.embed = first == 0;
  options.first = first;
  options.last = last;
  options.kv_bytes = kv_bytes_for(model.config(), std::min(last, model.config().layers) - first,
                                  Profile::kF32, 40);
  return options;
}

// |got - expected| / |expected|
inline double relative(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double(got[i]) - expected[i], 2);
    norm += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace split::test
