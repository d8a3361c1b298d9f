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
    reduce_rows<Reduce_##name>(in, stride, rows, n, out);                                 \
  }

// Element c of a row is in chain c % 256; then chain c takes c + 128, c + 64, and so on to c + 1:
// lanes of a GPU can do the same. Chains without an element would change nothing.
template <typename Op>
void reduce_rows(const float* in, size_t stride, size_t rows, size_t n, float* out) {
  constexpr size_t kChains = 256;
  alignas(64) float chains[kChains];
  for (size_t row = 0; row < rows; ++row, in += stride) {
    size_t half = kChains / 2;
    while (half >= 16 && half >= n) half /= 2;
    for (size_t from = 0; from < 2 * half; from += 16) {
      float chain[16];
      for (float& c : chain) c = Op::first();
      for (size_t i = from; i + 16 <= n; i += kChains) {
        _Pragma("GCC unroll 1")  // or it is never vectorised
            for (size_t lane = 0; lane < 16; ++lane) {
          chain[lane] = Op::both(chain[lane], in[i + lane]);
        }
      }
      const size_t last = n / 16 * 16;
      if (last % kChains == from) {
        for (size_t lane = 0; last + lane < n; ++lane) {
          chain[lane] = Op::both(chain[lane], in[last + lane]);
        }
      }
      __builtin_memcpy(chains + from, chain, sizeof chain);
    }
    for (; half > 0; half /= 2) {
      for (size_t c = 0; c < half; ++c) chains[c] = Op::both(chains[c], chains[c + half]);
    }
    out[row] = chains[0];
  }
}

#include "tensor/ops.def"

}  // namespace glsl::SPLIT_ISA

}  // namespace split
