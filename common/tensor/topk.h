// The top k of a row on the host: the result of Op::k_topk.
#pragma once

#include <span>

namespace split {

// out [2 k]: the k largest of `row` and their columns, in the order of topk() in tensor/tensor.h.
void topk_row(std::span<const float> row, std::span<float> out);

}  // namespace split
