// The top k of a row on the host: what Op::k_topk computes.
#pragma once

#include <span>

namespace split {

// out [2 k]: the k largest of `row` and their columns, as topk() of tensor/tensor.h orders them.
void topk_row(std::span<const float> row, std::span<float> out);

}  // namespace split
