#include "train/tail.h"

#include <algorithm>

#include "autograd/functions.h"
#include "base/error.h"

namespace split::train {

std::string lora_name(const std::string& matrix, char which) {
  constexpr std::string_view kEnd = ".weight";
  CHECK(matrix.ends_with(kEnd));
  return cat(matrix.substr(0, matrix.size() - kEnd.size()), ".lora_", which);
}

Tail::Tail(const Model& model, const TailShape& shape) : model_(model), shape_(shape) {
  const int layers = model.config().layers;
  if (model.config().encodes()) {
    throw Error(ErrorKind::kInput, "[train] expected a model that writes text, got an encoder");
  }
  if (shape.first < 0 || shape.first >= layers) {
    throw Error(ErrorKind::kInput,
                cat("[train] expected 1 to ", layers, " blocks, got ", layers - shape.first));
  }
  std::vector<optim::State> vectors;
  const auto add = [&](const std::string& stage) {
    for (const std::string& blob : model.stage(stage).blobs) {
      for (const WeightDecl& weight : model.blob(blob).weights) {
        const bool matrix = weight.product != Product::kNone;
        if (shape_.lora == 0) {
          (matrix ? trained_ : vectors).push_back({weight.name, weight.dims});
        } else if (matrix) {
          const bool in_out = weight.product == Product::kInOut;
          trained_.push_back(
              {lora_name(weight.name, 'A'), {shape_.lora, weight.dims[in_out ? 0 : 1]}});
          trained_.push_back(
              {lora_name(weight.name, 'B'), {weight.dims[in_out ? 1 : 0], shape_.lora}});
        }
      }
    }
  };
  for (int layer = shape.first; layer < layers; ++layer) add(cat("block.", layer));
  if (shape.lora == 0) add("norm");
  trained_.insert(trained_.end(), vectors.begin(), vectors.end());
}

std::vector<std::string> Tail::weights(int from) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& stage) {
    for (const std::string& blob : model_.stage(stage).blobs) {
      for (const WeightDecl& weight : model_.blob(blob).weights) {
        if (std::ranges::find(names, weight.name) == names.end()) names.push_back(weight.name);
      }
    }
  };
  if (from < 0) add("embed");
  for (int layer = std::max(0, from); layer < model_.config().layers; ++layer) {
    add(cat("block.", layer));
  }
  add("norm");
  add("head");
  return names;
}

uint64_t Tail::frozen_bytes() const {
  const std::vector<std::string> own = weights(shape_.first);
  uint64_t floats = 0;
  for (const std::string& name : weights(-1)) {
    if (std::ranges::find(own, name) != own.end()) continue;
    floats += static_cast<uint64_t>(element_count(model_.weight(name).dims).value_or(0));
  }
  return floats * sizeof(float);
}

Tensor Tail::leaf(const std::string& name, const Dims& dims) {
  return made_.try_emplace(name, weight(name, DType::kF32, dims)).first->second;
}

Leaves Tail::leaves() {
  Leaves all;
  all.weight = [this](const std::string& name, const Dims& dims) { return leaf(name, dims); };
  if (shape_.lora == 0) return all;
  all.adapter = [this](const std::string& matrix, const Tensor& x) -> std::optional<Tensor> {
    if (!matrix.ends_with(".weight")) return std::nullopt;
    const auto find = [&](char which) {
      const std::string name = lora_name(matrix, which);
      return std::ranges::find_if(trained_,
                                  [&](const optim::State& one) { return one.name == name; });
    };
    const auto a = find('A'), b = find('B');
    if (a == trained_.end()) return std::nullopt;
    return matmul(matmul(x, transpose(leaf(a->name, a->dims), 0, 1)),
                  transpose(leaf(b->name, b->dims), 0, 1)) *
           shape_.scale;
  };
  return all;
}

Tensor Tail::head(const Windows& windows, const Tensor& ids) {
  const Leaves all = leaves();
  Tensor x = over_windows(model_, model_.stage("embed"), windows, ids, all);
  for (int layer = 0; layer < shape_.first; ++layer) {
    x = over_windows(model_, model_.stage(cat("block.", layer)), windows, x, all);
  }
  return x;
}

Tensor Tail::logits(const Windows& windows, const Tensor& hidden) {
  const Leaves all = leaves();
  Tensor x = hidden;
  for (int layer = shape_.first; layer < model_.config().layers; ++layer) {
    x = over_windows(model_, model_.stage(cat("block.", layer)), windows, x, all);
  }
  return over_windows(model_, model_.stage("head"), windows, x, all);  // begins with the norm
}

std::vector<optim::Group> Tail::groups(const optim::Options& options) {
  optim::Group matrices{{}, options}, vectors{{}, options};
  vectors.options.weight_decay = 0;
  for (const optim::State& one : trained_) {
    (one.dims.size() > 1 ? matrices : vectors)
        .parameters.push_back({one.name, leaf(one.name, one.dims)});
  }
  std::vector<optim::Group> groups{matrices};
  if (!vectors.parameters.empty()) groups.push_back(vectors);
  return groups;
}

}  // namespace split::train
