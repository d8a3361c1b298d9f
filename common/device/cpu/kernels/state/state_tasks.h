// The work of the two kernels that keep a state of earlier rows (delta.h), for kernels.h.
#pragma once

#include "tensor/state_shape.h"

namespace split {

// Convolves columns [first, first + columns) of consecutive rows of one sequence, each channel by
// its own taps, the last of which is the row's; y = silu of that. Keeps the rows in the state.
struct ConvTask {
  StateShape shape;
  const float* x = nullptr;  // column `first`, x_stride floats from row to row
  size_t x_stride = 0;
  size_t rows = 0;
  size_t position = 0;       // the first row's
  const float* w = nullptr;  // [taps, width]
  size_t first = 0;
  size_t columns = 0;  // at most kConvColumns
  float* state = nullptr;
  float* y = nullptr;  // column `first`
  size_t y_stride = 0;
};
inline constexpr size_t kConvColumns = 256;

// The delta rule for consecutive rows of one sequence, one key head and the value heads that share
// it. Of a row and value head: S := e^g S; d = beta (v - S^T k); S += k d^T; y = S^T q, with
// beta = sigmoid(b), g = decay softplus(a + dt_bias), and q and k of length 1, q times `scale`.
struct DeltaTask {
  StateShape shape;
  size_t head = 0;           // number among the heads of keys
  const float* x = nullptr;  // [rows, width] behind the convolution, x_stride floats apart
  size_t x_stride = 0;
  const float* a = nullptr;  // [rows, value_heads]
  const float* b = nullptr;
  const float* decay = nullptr;    // [value_heads], below zero
  const float* dt_bias = nullptr;  // [value_heads]
  float scale = 1;
  size_t rows = 0;
  size_t position = 0;  // the first row's; the state has all rows before it
  float* state = nullptr;
  float* y = nullptr;  // [rows, value_heads, value_dim], y_stride floats from row to row
  size_t y_stride = 0;
  float* scratch = nullptr;  // delta_scratch() floats
};
constexpr size_t delta_scratch(const StateShape& shape) {
  return kPageTokens * (2 * shape.key_dim + (shape.value_dim + 15) / 16 * 16);
}

}  // namespace split
