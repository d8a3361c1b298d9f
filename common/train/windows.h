// A model's own stages over windows of tokens, as graphs of the tensor library: the graph that a
// stage traces for a step's rows, without caches and with its attention, rotations and columns made
// of views and products. One function for every decoder; refuses an unknown op by name. Knows no
// file and no device.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "autograd/kernels.h"
#include "models/model.h"

namespace split::train {

using split::Windows;

struct Leaves {
  // The leaf of a weight or of a model's constant, in F32, in the checkpoint's shape.
  std::function<Tensor(const std::string& name, const Dims& dims)> weight;
  // A term added to the product of x [rows, K] with that matrix, or none.
  std::function<std::optional<Tensor>(const std::string& matrix, const Tensor& x)> adapter = {};
};

// A stage's result. `in`: ids [rows] for a stage that takes tokens, else hidden [rows, C]. Throws
// Error(kShape) for a window beyond the model's positions and for an unknown graph.
Tensor over_windows(const Model& model, const Stage& stage, const Windows& windows,
                    const Tensor& in, const Leaves& leaves);

}  // namespace split::train
