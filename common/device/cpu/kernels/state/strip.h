// Strips of 16 columns for delta.h. For kernels.cpp only, which is compiled once for each
// instruction set; by exact.h's rule each set has the same bits.
#pragma once

#include <cstddef>

#include "device/cpu/kernels/state/exact.h"

namespace split::SPLIT_ISA {
namespace {

// Sixteen columns, in the widest registers there are; the compiler's own vectors, as each lane is
// by itself.
#if defined(__AVX512F__)
inline constexpr size_t kNative = 16;
#elif defined(__AVX2__)
inline constexpr size_t kNative = 8;
#else
inline constexpr size_t kNative = 4;
#endif
typedef float Native __attribute__((vector_size(kNative * sizeof(float))));
typedef int NativeBits __attribute__((vector_size(kNative * sizeof(int))));
inline Native lanes_at_least(Native x, int bound) {
  const auto bits = reinterpret_cast<NativeBits>(x);
  return reinterpret_cast<Native>(bits & ((bits & 0x7fffffff) >= bound));
}
inline Native lanes_of(NativeBits where, Native yes, Native no) {
  return reinterpret_cast<Native>((reinterpret_cast<NativeBits>(yes) & where) |
                                  (reinterpret_cast<NativeBits>(no) & ~where));
}
// exact::exp_x() of each lane, with its bits.
inline Native lanes_exp(Native x) {
  const Native least = Native{} - 60.0f, most = Native{} + 60.0f;
  Native c = lanes_of(x < least, least, x);
  c = lanes_of(most < c, most, c);
  const Native k0 = c * 1.442695041f + 0.5f;
  NativeBits n = __builtin_convertvector(k0, NativeBits);  // towards 0
  n += __builtin_convertvector(n, Native) > k0;
  const Native k = __builtin_convertvector(n, Native);
  const Native r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
  Native p = r * 1.393370113e-3f + 8.363181008e-3f;
  p = p * r + 4.166646446e-2f;
  p = p * r + 1.666657697e-1f;
  p = p * r + 0.5f;
  const Native e = ((r * r) * p + r) + 1.0f;
  return reinterpret_cast<Native>(reinterpret_cast<NativeBits>(e) + n * (1 << 23));
}
struct Strip {
  static constexpr size_t kParts = 16 / kNative;
  Native v[kParts];

  static Strip load(const float* from) {
    Strip r;
    for (size_t i = 0; i < kParts; ++i) {
      __builtin_memcpy(&r.v[i], from + i * kNative, sizeof(Native));
    }
    return r;
  }
  void store(float* to) const {
    for (size_t i = 0; i < kParts; ++i) {
      __builtin_memcpy(to + i * kNative, &v[i], sizeof(Native));
    }
  }
  // this + x y, rounded twice.
  void add(float x, const Strip& y) {
    for (size_t i = 0; i < kParts; ++i) v[i] = v[i] + x * y.v[i];
  }
  Strip times(float x) const {
    Strip r;
    for (size_t i = 0; i < kParts; ++i) r.v[i] = x * v[i];
    return r;
  }
  Strip times(const Strip& y) const {
    Strip r;
    for (size_t i = 0; i < kParts; ++i) r.v[i] = v[i] * y.v[i];
    return r;
  }
  Strip exp() const {
    Strip r;
    for (size_t i = 0; i < kParts; ++i) r.v[i] = lanes_exp(v[i]);
    return r;
  }
  Strip at_least(int bound) const {
    Strip r;
    for (size_t i = 0; i < kParts; ++i) r.v[i] = lanes_at_least(v[i], bound);
    return r;
  }
  Strip small() const { return at_least(exact::kSmall); }
  Strip clean() const { return at_least(exact::kClean); }
};

}  // namespace
}  // namespace split::SPLIT_ISA
