// The sum and the largest number of each of sixteen vectors. For kernels.cpp only, which is
// compiled once for each instruction set; each folds in the order of sum().
#pragma once

#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {
namespace {

// sum() of each of sixteen Vecs, and the largest number of each.
#if defined(__AVX512F__)
template <typename Join>
inline Vec folded(const Vec* v, const Join& join) {
  __m512 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {
    const __m512 a = v[i].v, b = v[i + 8].v;
    eight[i] = join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[i], b = eight[i + 4];
    four[i] = join(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512 a = four[i], b = four[i + 2];
    two[i] = join(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const __m512 one =
      join(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
  // A quarter has the Vecs 0, 2, 1, 3 of four that are 4, 8 apart.
  return {_mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15), one)};
}
inline Vec sums(const Vec* v) {
  return folded(v, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
inline Vec maxima(const Vec* v) {
  return folded(v, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}
#else
inline Vec sums(const Vec* v) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = sum(v[i]);
  return load(lanes);
}
inline Vec maxima(const Vec* v) {
  float largest[16];
  for (int i = 0; i < 16; ++i) {
    float lanes[16];
    store(lanes, v[i]);
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes[j] = glsl::max(lanes[j], lanes[j + half]);
    }
    largest[i] = lanes[0];
  }
  return load(largest);
}
#endif

}  // namespace
}  // namespace split::SPLIT_ISA
