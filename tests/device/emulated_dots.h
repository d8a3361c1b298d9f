// VPDPBUSD without AVX-512, on any processor with AVX2: what it computes, by other instructions.
#pragma once

#include <immintrin.h>

#include "device/cpu/kernels/kernels.h"

namespace split {
extern const RoundedKernels::Steps kInt8EmulatedDots;
}

namespace split::SPLIT_ISA {

// sum + the products of four bytes each, those of `u` without a sign.
inline __m256i add_dots(__m256i sum, __m256i u, __m256i s) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

}  // namespace split::SPLIT_ISA
