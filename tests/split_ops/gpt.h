// GPT-2's arithmetic as the goldens' training runs have it, over leaves by Hugging Face's names.
#pragma once

#include <functional>

#include "tensor/tensor.h"

namespace split::ops {

struct GptShape {
  int64_t vocab, context, channels, heads, layers;
};
// y = x W + b of a matrix by name, and what a run adds to it.
using Linear = std::function<Tensor(const std::string& name, const Tensor& x)>;

// The mean loss of tokens [B, T + 1], a leaf of whole numbers, by leaves that `leaf` makes.
Tensor gpt_loss(const GptShape& shape, const Tensor& tokens,
                const std::function<Tensor(const std::string&)>& leaf, const Linear& linear);

}  // namespace split::ops
