// Matrices rounded to the blocks of tensor/blocks.h. Each block's scale is chosen by a small search
// for the least squared error, in which ggml's own choice takes part: the layout is ggml's, the
// error never larger. The same matrix gives the same bytes on every machine.
#pragma once

#include <string_view>

#include "base/resources/thread_pool.h"
#include "tensor/blocks.h"

namespace split {

// kQuantiser changes when the same input gives other bytes: what was kept on a disk is then stale.
inline constexpr std::string_view kQuantiser = "1";

// A matrix of F32, F16 or BF16 as `to`. `transpose`: it is [K, rows] (Hugging Face's Conv1D), else
// [rows, K]; the result is [rows, K], the same bytes on any number of threads. Throws Error(kInput)
// for a value that is not finite or too large for a half-precision scale; `name` is for the
// message.
OwnedTensor quantised(const TensorView& matrix, DType to, bool transpose, std::string_view name,
                      ThreadPool* pool = nullptr);

// One block: kBlock floats to block_bytes(to) bytes. False for values as above.
bool quantise_block(DType to, const float* values, std::byte* out);

}  // namespace split
