// The rows of the op table as loops, for the sets of kernels alone, each compiled for its own
// instruction set.
#pragma once

#include "device/cpu/kernels/glsl_shim.h"

namespace split {
namespace glsl::SPLIT_ISA {

using namespace split::glsl;  // NOLINT: the table's rows are GLSL

#define FUNC(type, name, parameters, ...) static inline type name parameters __VA_ARGS__
#define UNARY(name, forward, gradient)                                                         \
  [[maybe_unused]] static void unary_##name(const float* __restrict in, float* __restrict out, \
                                            size_t n) {                                        \
    for (size_t i = 0; i < n; ++i) {                                                           \
      const float x = in[i];                                                                   \
      out[i] = forward;                                                                        \
    }                                                                                          \
  }
#define BINARY(name, forward, gradient_x, gradient_z)                                              \
  [[maybe_unused]] static void binary_##name(const float* __restrict left,                         \
                                             const float* __restrict right, float* __restrict out, \
                                             size_t n) {                                           \
    for (size_t i = 0; i < n; ++i) {                                                               \
      const float x = left[i], z = right[i];                                                       \
      out[i] = forward;                                                                            \
    }                                                                                              \
  }                                                                                                \
  [[maybe_unused]] static void binary_by_##name(const float* __restrict left, float z,             \
                                                float* __restrict out, size_t n) {                 \
    for (size_t i = 0; i < n; ++i) {                                                               \
      const float x = left[i];                                                                     \
      out[i] = forward;                                                                            \
    }                                                                                              \
  }
#define REDUCE(name, start, combine, gradient)                                            \
  struct Reduce_##name {                                                                  \
    static float first() { return start; }                                                \
    static float both(float acc, float x) { return combine; }                             \
  };                                                                                      \
  [[maybe_unused]] static void reduce_##name(const float* in, size_t stride, size_t rows, \
                                             size_t n, float* out) {                      \
    reduce_rows<Reduce_##name, 4>(in, stride, rows, n, out);                              \
  }

// Some rows together: each alone would wait for its own chains.
template <typename Op, size_t Rows>
void reduce_rows(const float* in, size_t stride, size_t rows, size_t n, float* out) {
  for (; rows >= Rows; rows -= Rows, in += Rows * stride, out += Rows) {
    float chains[Rows][16];
    for (auto& chain : chains) {
      for (float& c : chain) c = Op::first();
    }
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (size_t row = 0; row < Rows; ++row) {
        const float* const x = in + row * stride + i;
        _Pragma("GCC unroll 1")  // or it is never vectorised
            for (size_t lane = 0; lane < 16; ++lane) {
          chains[row][lane] = Op::both(chains[row][lane], x[lane]);
        }
      }
    }
    for (size_t row = 0; row < Rows; ++row) {
      float* const chain = chains[row];
      for (size_t lane = 0; i + lane < n; ++lane) {
        chain[lane] = Op::both(chain[lane], in[row * stride + i + lane]);
      }
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; ++lane) {
          chain[lane] = Op::both(chain[lane], chain[lane + half]);
        }
      }
      out[row] = chain[0];
    }
  }
  if constexpr (Rows > 1) {
    if (rows > 0) reduce_rows<Op, 1>(in, stride, rows, n, out);
  }
}

#include "tensor/ops.def"

}  // namespace glsl::SPLIT_ISA

}  // namespace split
