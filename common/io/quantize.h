// Matrices rounded to the blocks of tensor/blocks.h. A small search chooses each block's scale for
// the least squared error, with ggml's own choice among the candidates: the layout is ggml's, the
// error never larger. The same matrix gives the same bytes on every machine.
#pragma once

#include <string_view>

#include "base/resources/thread_pool.h"
#include "tensor/blocks.h"

namespace split {

// Changes when the same input gives other bytes: files on a disk are then stale.
inline constexpr std::string_view kQuantiser = "1";

// Quantises a matrix of F32, F16 or BF16 to `to`. `transpose`: it is [K, rows] (Hugging Face's
// Conv1D), else [rows, K]; the result is [rows, K], with the same bytes on any number of threads.
// Throws Error(kInput) for a value that is not finite or too large for a half-precision scale;
// `name` is for the message.
OwnedTensor quantised(const TensorView& matrix, DType to, bool transpose, std::string_view name,
                      ThreadPool* pool = nullptr);

// Quantises kBlock floats to block_bytes(to) bytes. Returns false for such values.
bool quantise_block(DType to, const float* values, std::byte* out);

}  // namespace split
