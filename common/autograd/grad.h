// Gradients: a graph made out of a graph. Each op's gradient is made of other ops, by its column of
// ops.def or, for views and kernels, by a function of its name, so that a gradient has gradients
// too. Knows no device.
#pragma once

#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace split::autograd {

// The gradients, by each of `inputs`, of the sum over outputs of output * dy: zeros where an output
// does not depend on it. dys are those that arrive, of the outputs' shapes; none are ones.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> dys = {});

// y of these inputs with gradients that `rule` makes, in place of those of what y is made of: a
// function that a caller defines.
Tensor with_gradient(const Tensor& y, const std::vector<Tensor>& inputs, GradientRule rule);

}  // namespace split::autograd
