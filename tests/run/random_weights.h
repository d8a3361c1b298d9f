// Random weights of the shapes that a config asks for: models of any size, without a file.
#pragma once

#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace split::test {

struct RandomWeights {
  explicit RandomWeights(const Model& model) {
    std::mt19937 random(7);
    for (const Blob& blob : model.blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        const bool norm = decl.name.find("ln_") != decl.name.npos && decl.name.ends_with("weight");
        std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, 0.25f);
        auto& values = tensors[decl.name];
        values.second.resize(static_cast<size_t>(element_count(decl.dims).value()));
        values.first = decl.dims;
        for (float& value : values.second) value = normal(random);
      }
    }
  }
  TensorView view(const std::string& name) const {
    const auto& [dims, values] = tensors.at(name);
    return {DType::kF32, dims, std::as_bytes(std::span(values))};
  }
  std::map<std::string, std::pair<Dims, std::vector<float>>> tensors;
};

}  // namespace split::test
