// Sixteen int32, each the sum of products of int8, four at a time, like vec.h's floats. For
// kernels.cpp and rounded.cpp only.
#pragma once

#include "device/cpu/kernels/vec.h"
#ifdef SPLIT_WASM_KERNELS
#include "device/cpu/kernels/wasm/dot_int8.h"
#endif
#ifdef SPLIT_EMULATED_DOTS
#include "emulated_dots.h"
#endif

namespace split::SPLIT_ISA {

// For sixteen columns: Ints are their sums, Fours four numbers of each, plus kOffset<dtype>.
// add_fours() adds these times four numbers of a row, read as one word: products,
// kFoursTogether<dtype> at most, before add_products() adds them to a sum.
template <DType dtype>
constexpr bool kNibbles = dtype == DType::kQ4_0 || dtype == DType::kQ4_K;
// The excess of packed numbers over their values: only Q8_0's have a sign.
template <DType dtype>
constexpr int32_t kPackedOffset = dtype == DType::kQ4_0   ? 8
                                  : dtype == DType::kQ6_K ? 32
                                                          : 0;

#if defined(__AVX2__)

#if defined(__AVX512F__)
using Reg = __m512i;
inline Reg load_reg(const std::byte* at) { return _mm512_loadu_si512(at); }
inline Reg same(int32_t x) { return _mm512_set1_epi32(x); }
inline Reg both_bits(Reg x, Reg y) { return _mm512_and_si512(x, y); }
inline Reg other_bits(Reg x, Reg y) { return _mm512_xor_si512(x, y); }
inline Reg high_nibbles(Reg x) { return _mm512_srli_epi16(x, 4); }
inline Reg add_ints(Reg x, Reg y) { return _mm512_add_epi32(x, y); }
inline Reg add_halves(Reg x, Reg y) { return _mm512_add_epi16(x, y); }
inline Reg pairs_of_bytes(Reg w, Reg x) { return _mm512_maddubs_epi16(w, x); }
inline Reg pairs_of_halves(Reg x, Reg y) { return _mm512_madd_epi16(x, y); }
inline Reg magnitudes(Reg w) { return _mm512_abs_epi8(w); }
inline Reg signed_as(Reg x, Reg w) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
#else
using Reg = __m256i;
inline Reg load_reg(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
inline Reg same(int32_t x) { return _mm256_set1_epi32(x); }
inline Reg both_bits(Reg x, Reg y) { return _mm256_and_si256(x, y); }
inline Reg other_bits(Reg x, Reg y) { return _mm256_xor_si256(x, y); }
inline Reg high_nibbles(Reg x) { return _mm256_srli_epi16(x, 4); }
inline Reg add_ints(Reg x, Reg y) { return _mm256_add_epi32(x, y); }
inline Reg add_halves(Reg x, Reg y) { return _mm256_add_epi16(x, y); }
inline Reg pairs_of_bytes(Reg w, Reg x) { return _mm256_maddubs_epi16(w, x); }
inline Reg pairs_of_halves(Reg x, Reg y) { return _mm256_madd_epi16(x, y); }
inline Reg magnitudes(Reg w) { return _mm256_abs_epi8(w); }
inline Reg signed_as(Reg x, Reg w) { return _mm256_sign_epi8(x, w); }
#endif
constexpr size_t kRegs = 64 / sizeof(Reg);

struct Ints {
  Reg v[kRegs];
};
struct Fours {
  Reg v[kRegs];
};
// x[0] first + x[1] second, for all lanes.
inline Ints all_of_pair(const int16_t (&x)[2], int32_t first, int32_t second) {
  int32_t pair = 0;
  __builtin_memcpy(&pair, x, sizeof pair);
  Ints r;
  for (Reg& v : r.v) v = pairs_of_halves(same(pair), same(second * 65536 + (first & 0xffff)));
  return r;
}
inline Ints add(Ints x, Ints y) {
  for (size_t i = 0; i < kRegs; ++i) x.v[i] = add_ints(x.v[i], y.v[i]);
  return x;
}
// Keeps them in their registers, like hold() of vec.h.
inline void hold(Ints& x) {
  for (Reg& v : x.v) asm("" : "+v"(v));
}
inline Vec to_floats(Ints x) {
#if defined(__AVX512F__)
  return {_mm512_cvtepi32_ps(x.v[0])};
#else
  return {_mm256_cvtepi32_ps(x.v[0]), _mm256_cvtepi32_ps(x.v[1])};
#endif
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(SPLIT_EMULATED_DOTS)
#if defined(__AVX512VNNI__)
inline Reg add_dots(Reg sum, Reg w, Reg x) { return _mm512_dpbusd_epi32(sum, w, x); }
#elif defined(__AVXVNNI__)
inline Reg add_dots(Reg sum, Reg w, Reg x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#endif
// One operand of VPDPBUSD has no sign.
template <DType dtype>
constexpr int32_t kOffset = dtype == DType::kQ8_0 ? 128 : kPackedOffset<dtype>;
template <DType dtype>
inline Reg numbers_of_bytes(Reg x) {
  return dtype == DType::kQ8_0 ? other_bits(x, same(-0x7f7f7f80)) : x;
}
template <DType>
inline Ints add_fours(Ints products, Fours w, int32_t x) {
  for (size_t i = 0; i < kRegs; ++i) products.v[i] = add_dots(products.v[i], w.v[i], same(x));
  return products;
}
#define SPLIT_ADDS_DOTS
#else
template <DType dtype>
constexpr int32_t kOffset = kPackedOffset<dtype>;
// Two products of bytes at a time become 16 bits: Q8_0's 2 * 128 * 127 at most, Q6_K's 2 * 63 *
// 127, nibbles' 2 * 15 * 127.
template <DType dtype>
constexpr size_t kFoursTogether = kNibbles<dtype>         ? 8
                                  : dtype == DType::kQ6_K ? 2
                                                          : 1;
template <DType>
inline Reg numbers_of_bytes(Reg x) {
  return x;
}
template <DType dtype>
inline Ints add_fours(Ints products, Fours w, int32_t x) {
  for (size_t i = 0; i < kRegs; ++i) {
    const Reg four = dtype == DType::kQ8_0
                         ? pairs_of_bytes(magnitudes(w.v[i]), signed_as(same(x), w.v[i]))
                         : pairs_of_bytes(w.v[i], same(x));
    products.v[i] = add_halves(products.v[i], four);
  }
  return products;
}
inline Ints add_products(Ints sum, Ints products) {
  for (size_t i = 0; i < kRegs; ++i) {
    sum.v[i] = add_ints(sum.v[i], pairs_of_halves(products.v[i], same(0x00010001)));
  }
  return sum;
}
#endif

template <DType dtype>
inline Fours fours_at(const std::byte* at, [[maybe_unused]] size_t half) {
  Fours r;
  for (Reg& v : r.v) {
    v = load_reg(at), at += sizeof v;
    if constexpr (kNibbles<dtype>) {
      v = both_bits(half == 0 ? v : high_nibbles(v), same(0x0f0f0f0f));
    } else {
      v = numbers_of_bytes<dtype>(v);
    }
  }
  return r;
}

#elif defined(SPLIT_NEON_KERNELS)

struct Ints {
  int32x4_t v[4];
};
struct Fours {
  int8x16_t v[4];
};
inline void hold(Ints&) {}
inline Ints add(Ints x, Ints y) {
  for (int i = 0; i < 4; ++i) x.v[i] = vaddq_s32(x.v[i], y.v[i]);
  return x;
}
inline Ints all_of_pair(const int16_t (&x)[2], int32_t first, int32_t second) {
  const int32x4_t same = vdupq_n_s32(x[0] * first + x[1] * second);
  return {{same, same, same, same}};
}
inline Vec to_floats(Ints x) {
  return {
      {vcvtq_f32_s32(x.v[0]), vcvtq_f32_s32(x.v[1]), vcvtq_f32_s32(x.v[2]), vcvtq_f32_s32(x.v[3])}};
}
template <DType dtype>
inline Fours fours_at(const std::byte* at, size_t half) {
  Fours r;
  for (int8x16_t& v : r.v) {
    const uint8x16_t q = vld1q_u8(reinterpret_cast<const uint8_t*>(at));
    at += sizeof v;
    v = vreinterpretq_s8_u8(!kNibbles<dtype> ? q
                            : half == 0      ? vandq_u8(q, vdupq_n_u8(15))
                                             : vshrq_n_u8(q, 4));
  }
  return r;
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

#elif !defined(SPLIT_WASM_KERNELS)  // wasm/dot_int8.h

struct Ints {
  int32_t v[16];
};
struct Fours {
  int8_t v[64];
};
inline void hold(Ints&) {}
inline Ints add(Ints x, const Ints& y) {
  for (int i = 0; i < 16; ++i) x.v[i] += y.v[i];
  return x;
}
inline Ints all_of_pair(const int16_t (&x)[2], int32_t first, int32_t second) {
  Ints r;
  for (int32_t& lane : r.v) lane = x[0] * first + x[1] * second;
  return r;
}
inline Vec to_floats(Ints x) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(x.v[i]);
  return r;
}
template <DType dtype>
inline Fours fours_at(const std::byte* at, size_t half) {
  Fours r;
  for (int8_t& v : r.v) {
    const auto q = static_cast<int8_t>(*at++);
    v = static_cast<int8_t>(!kNibbles<dtype> ? q : half == 0 ? q & 15 : q >> 4 & 15);
  }
  return r;
}
template <DType>
inline Ints add_fours(Ints sum, const Fours& w, int32_t x) {
  int8_t four[4];
  __builtin_memcpy(four, &x, sizeof four);
  for (int i = 0; i < 64; ++i) sum.v[i / 4] += w.v[i] * four[i % 4];
  return sum;
}

#endif

#if !defined(__AVX2__)
template <DType dtype>
constexpr int32_t kOffset = kPackedOffset<dtype>;
#endif
#if !defined(__AVX2__) || defined(SPLIT_ADDS_DOTS)
template <DType>
constexpr size_t kFoursTogether = kBlock / 4;
inline Ints add_products(Ints sum, const Ints& products) { return add(sum, products); }
#endif

}  // namespace split::SPLIT_ISA
