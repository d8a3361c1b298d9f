// Sixteen int32, each the sum of products of int8, four at a time, as vec.h has the floats. For
// kernels.cpp only.
#pragma once

#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {

// For sixteen columns: Ints are their sums, Fours four numbers of each, plus offset<dtype>;
// add_fours() adds these times four numbers of a row, which it has read as one word.
#if defined(__AVX512VNNI__)

struct Ints {
  __m512i v;
};
struct Fours {
  __m512i v;
};
// One operand of VPDPBUSD has no sign.
template <DType dtype>
constexpr int32_t offset = dtype == DType::kQ8_0 ? 128 : 8;
inline Ints all(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Vec to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline Fours fours_of_q8(const std::byte* at) {
  return {_mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set1_epi8(-128))};
}
inline void fours_of_q4(const std::byte* at, Fours& low, Fours& high) {
  const __m512i both = _mm512_loadu_si512(at), four = _mm512_set1_epi8(15);
  low = {_mm512_and_si512(both, four)};
  high = {_mm512_and_si512(_mm512_srli_epi16(both, 4), four)};
}
template <DType>
inline Ints add_fours(Ints sum, Fours w, int32_t x) {
  return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(x))};
}

#elif defined(__AVX512F__)

struct Ints {
  __m512i v;
};
struct Fours {
  __m512i v;  // Q8_0: magnitudes
  __mmask64 negative;
};
template <DType dtype>
constexpr int32_t offset = dtype == DType::kQ8_0 ? 0 : 8;
inline Ints all(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Vec to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline Fours fours_of_q8(const std::byte* at) {
  const __m512i numbers = _mm512_loadu_si512(at);
  return {_mm512_abs_epi8(numbers), _mm512_movepi8_mask(numbers)};
}
inline void fours_of_q4(const std::byte* at, Fours& low, Fours& high) {
  const __m512i both = _mm512_loadu_si512(at), four = _mm512_set1_epi8(15);
  low = {_mm512_and_si512(both, four), 0};
  high = {_mm512_and_si512(_mm512_srli_epi16(both, 4), four), 0};
}
// Two products at most are 2 * 128 * 127, which 16 bits hold.
template <DType dtype>
inline Ints add_fours(Ints sum, Fours w, int32_t x) {
  __m512i signed_x = _mm512_set1_epi32(x);
  if constexpr (dtype == DType::kQ8_0) {
    signed_x = _mm512_mask_sub_epi8(signed_x, w.negative, _mm512_setzero_si512(), signed_x);
  }
  const __m512i pairs = _mm512_maddubs_epi16(w.v, signed_x);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}

#elif defined(__AVX2__)

struct Ints {
  __m256i a, b;
};
struct Fours {
  __m256i a, b;  // Q4_0: plus 8
};
template <DType dtype>
constexpr int32_t offset = dtype == DType::kQ8_0 ? 0 : 8;
inline Ints all(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Vec to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline Fours fours_of_q8(const std::byte* at) {
  const auto* half = reinterpret_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
inline void fours_of_q4(const std::byte* at, Fours& low, Fours& high) {
  const Fours both = fours_of_q8(at);
  const __m256i four = _mm256_set1_epi8(15);
  low = {_mm256_and_si256(both.a, four), _mm256_and_si256(both.b, four)};
  high = {_mm256_and_si256(_mm256_srli_epi16(both.a, 4), four),
          _mm256_and_si256(_mm256_srli_epi16(both.b, 4), four)};
}
// Two products at most are 2 * 128 * 127, which 16 bits hold.
template <DType dtype>
inline Ints add_fours(Ints sum, Fours w, int32_t x) {
  const __m256i same = _mm256_set1_epi32(x);
  const auto add = [&](__m256i total, __m256i numbers) {
    __m256i pairs;
    if constexpr (dtype == DType::kQ8_0) {
      pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(numbers), _mm256_sign_epi8(same, numbers));
    } else {
      pairs = _mm256_maddubs_epi16(numbers, same);
    }
    return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  };
  return {add(sum.a, w.a), add(sum.b, w.b)};
}

#elif defined(SPLIT_NEON_KERNELS)

struct Ints {
  int32x4_t v[4];
};
struct Fours {
  int8x16_t v[4];
};
template <DType dtype>
constexpr int32_t offset = dtype == DType::kQ8_0 ? 0 : 8;
inline Ints all(int32_t x) {
  const int32x4_t same = vdupq_n_s32(x);
  return {{same, same, same, same}};
}
inline Vec to_floats(Ints x) {
  return {
      {vcvtq_f32_s32(x.v[0]), vcvtq_f32_s32(x.v[1]), vcvtq_f32_s32(x.v[2]), vcvtq_f32_s32(x.v[3])}};
}
inline Fours fours_of_q8(const std::byte* at) {
  const auto* q = reinterpret_cast<const int8_t*>(at);
  return {{vld1q_s8(q), vld1q_s8(q + 16), vld1q_s8(q + 32), vld1q_s8(q + 48)}};
}
inline void fours_of_q4(const std::byte* at, Fours& low, Fours& high) {
  const auto* q = reinterpret_cast<const uint8_t*>(at);
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t both = vld1q_u8(q + 16 * i);
    low.v[i] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    high.v[i] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
}
template <DType>
inline Ints add_fours(Ints sum, Fours w, int32_t x) {
  const int8x16_t same = vreinterpretq_s8_s32(vdupq_n_s32(x));
  for (int i = 0; i < 4; ++i) {
#if defined(__ARM_FEATURE_DOTPROD)
    sum.v[i] = vdotq_s32(sum.v[i], w.v[i], same);
#else
    const int16x8_t left = vmull_s8(vget_low_s8(w.v[i]), vget_low_s8(same));
    const int16x8_t right = vmull_high_s8(w.v[i], same);
    // Two products at most are 2 * 128 * 127, which 16 bits hold.
    sum.v[i] = vpadalq_s16(sum.v[i], vpaddq_s16(left, right));
#endif
  }
  return sum;
}

#else

struct Ints {
  int32_t v[16];
};
struct Fours {
  int8_t v[64];
};
template <DType dtype>
constexpr int32_t offset = dtype == DType::kQ8_0 ? 0 : 8;
inline Ints all(int32_t x) {
  Ints r;
  for (int32_t& lane : r.v) lane = x;
  return r;
}
inline Vec to_floats(Ints x) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(x.v[i]);
  return r;
}
inline Fours fours_of_q8(const std::byte* at) {
  Fours r;
  __builtin_memcpy(r.v, at, sizeof r.v);
  return r;
}
inline void fours_of_q4(const std::byte* at, Fours& low, Fours& high) {
  for (int i = 0; i < 64; ++i) {
    low.v[i] = static_cast<int8_t>(at[i] & std::byte{15});
    high.v[i] = static_cast<int8_t>(at[i] >> 4);
  }
}
template <DType>
inline Ints add_fours(Ints sum, const Fours& w, int32_t x) {
  int8_t four[4];
  __builtin_memcpy(four, &x, sizeof four);
  for (int i = 0; i < 64; ++i) sum.v[i / 4] += w.v[i] * four[i % 4];
  return sum;
}

#endif

}  // namespace split::SPLIT_ISA
