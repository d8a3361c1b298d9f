// Rotary positions of a row's heads, behind their norms. For kernels.cpp only, which is compiled
// once for each instruction set.
#pragma once

#include "device/cpu/kernels/kernels.h"

namespace split::SPLIT_ISA {
namespace {

// x / sqrt(mean x^2 + eps) * (weight + plus).
inline void norm_head(const float* x, const RotateTask& task, float* __restrict to) {
  const size_t n = task.head_size;
  for (size_t i = 0; i < n; ++i) to[i] = x[i] * x[i];
  float sum = 0;
  glsl::SPLIT_ISA::reduce_sum(to, 0, 1, n, &sum);
  const float scale = 1.0f / glsl::sqrt(sum * (1.0f / static_cast<float>(n)) + task.eps);
  for (size_t i = 0; i < n; ++i) to[i] = x[i] * scale * (task.weight[i] + task.plus);
}

// First half a, second half b: a cos - b sin, b cos + a sin.
inline void turn_head(const float* x, const float* cos, const float* sin, size_t half, float* y) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    y[i] = glsl::fma(a, cos[i], -(b * sin[i]));
    y[i + half] = glsl::fma(b, cos[i], a * sin[i]);
  }
}

void rotate(const RotateTask& task) {
  for (size_t head = 0; head < task.heads; ++head) {
    const float* x = task.x + head * task.head_size;
    float* const y = task.y + head * task.head_size;
    if (task.weight != nullptr) {
      norm_head(x, task, task.scratch);
      x = task.scratch;
    }
    turn_head(x, task.cos, task.sin, task.head_size / 2, y);
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
