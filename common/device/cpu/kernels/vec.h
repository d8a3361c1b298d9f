// Sixteen floats, as one 512-bit register, two of 256, four of 128, or an array. For kernels.cpp
// only, which is compiled once for each instruction set: everything here is in that set's
// namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(SPLIT_NEON_KERNELS)
#include <arm_neon.h>
#elif defined(SPLIT_WASM_KERNELS)
#include "device/cpu/kernels/wasm/vec.h"
#endif

#include "tensor/shape.h"

namespace split::SPLIT_ISA {

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
inline Vec load_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void store_f16(void* p, Vec a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec low_bits_as_exponent(Vec a) {  // bits << 23
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}
inline Vec from_numbers(__m128i q) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q))}; }
inline __m256 fold(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

#elif defined(__AVX2__)

struct Vec {
  __m256 a, b;
};
inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Vec load_f16(const void* p) {
  const auto* half = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))};
}
inline Vec load_bf16(const void* p) {
  const auto* half = static_cast<const __m128i*>(p);
  const auto widen = [](__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  };
  return {widen(_mm_loadu_si128(half)), widen(_mm_loadu_si128(half + 1))};
}
inline void store_f16(void* p, Vec x) {
  auto* half = static_cast<__m128i*>(p);
  _mm_storeu_si128(half, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(half + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Vec low_bits_as_exponent(Vec x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.a), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.b), 23))};
}
inline Vec from_numbers(__m128i q) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}
inline __m256 fold(Vec x) { return _mm256_add_ps(x.a, x.b); }

#elif defined(SPLIT_NEON_KERNELS)

struct Vec {
  float32x4_t v[4];
};
inline Vec broadcast(float x) {
  const float32x4_t four = vdupq_n_f32(x);
  return {{four, four, four, four}};
}
inline Vec zero() { return broadcast(0); }
inline Vec load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
inline void store(float* p, Vec x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
}
inline Vec fma(Vec x, Vec y, Vec z) {
  for (int i = 0; i < 4; ++i) z.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]);
  return z;
}
// Loads halves as bytes: they may lie anywhere.
inline Vec load_f16(const void* p) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(bytes));
  const float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(bytes + 16));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
           vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
}
inline Vec load_bf16(const void* p) {
  const auto* bytes = static_cast<const uint8_t*>(p);
  const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(bytes));
  const uint16x8_t high = vreinterpretq_u16_u8(vld1q_u8(bytes + 16));
  const auto widen = [](uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); };
  return {{widen(vget_low_u16(low)), widen(vget_high_u16(low)), widen(vget_low_u16(high)),
           widen(vget_high_u16(high))}};
}
inline void store_f16(void* p, Vec x) {
  auto* bytes = static_cast<uint8_t*>(p);
  const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(x.v[0]), x.v[1]);
  const float16x8_t high = vcvt_high_f16_f32(vcvt_f16_f32(x.v[2]), x.v[3]);
  vst1q_u8(bytes, vreinterpretq_u8_f16(low));
  vst1q_u8(bytes + 16, vreinterpretq_u8_f16(high));
}
inline Vec mul(Vec x, Vec y) {
  for (int i = 0; i < 4; ++i) x.v[i] = vmulq_f32(x.v[i], y.v[i]);
  return x;
}
inline Vec max(Vec x, Vec y) {
  for (int i = 0; i < 4; ++i) x.v[i] = vmaxq_f32(x.v[i], y.v[i]);
  return x;
}
inline Vec low_bits_as_exponent(Vec x) {
  for (float32x4_t& v : x.v) v = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(v), 23));
  return x;
}
inline Vec from_numbers(int8x16_t q) {
  const int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}

#elif !defined(SPLIT_WASM_KERNELS)  // wasm/vec.h

struct Vec {
  float v[16];
};
inline Vec zero() { return {}; }
inline Vec broadcast(float x) {
  Vec r;
  for (float& lane : r.v) lane = x;
  return r;
}
inline Vec load(const float* p) {
  Vec r;
  __builtin_memcpy(r.v, p, sizeof r.v);
  return r;
}
inline void store(float* p, Vec x) { __builtin_memcpy(p, x.v, sizeof x.v); }
inline Vec fma(Vec x, Vec y, Vec z) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = __builtin_fmaf(x.v[i], y.v[i], z.v[i]);
  return r;
}
inline Vec load_f16(const void* p) {
  uint16_t bits[16];
  __builtin_memcpy(bits, p, sizeof bits);
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = f16_to_f32(bits[i]);
  return r;
}
inline Vec load_bf16(const void* p) {
  uint16_t bits[16];
  __builtin_memcpy(bits, p, sizeof bits);
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = bf16_to_f32(bits[i]);
  return r;
}
inline void store_f16(void* p, Vec x) {
  uint16_t bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = f32_to_f16(x.v[i]);
  __builtin_memcpy(p, bits, sizeof bits);
}
inline Vec mul(Vec x, Vec y) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = x.v[i] * y.v[i];
  return r;
}
inline Vec max(Vec x, Vec y) {
  for (int i = 0; i < 16; ++i) x.v[i] = x.v[i] > y.v[i] ? x.v[i] : y.v[i];
  return x;
}
inline Vec low_bits_as_exponent(Vec x) {
  for (float& v : x.v) v = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v) << 23);
  return x;
}

#endif
// Adds by units of their own, beside those that multiply, if there are any.
#if defined(__AVX512F__)
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
#elif defined(__AVX2__)
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)}; }
#elif !defined(SPLIT_WASM_KERNELS)  // wasm/vec.h
inline Vec add(Vec a, Vec b) { return fma(a, broadcast(1.0f), b); }
#endif

// Sixteen int8.
#if defined(__AVX2__)
using Numbers = __m128i;
inline Numbers load_numbers(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
#elif defined(SPLIT_NEON_KERNELS)
using Numbers = int8x16_t;
inline Numbers load_numbers(const std::byte* p) {
  return vld1q_s8(reinterpret_cast<const int8_t*>(p));
}
#elif !defined(SPLIT_WASM_KERNELS)
struct Numbers {
  int8_t q[16];
};
inline Numbers load_numbers(const std::byte* p) {
  Numbers r;
  __builtin_memcpy(r.q, p, sizeof r.q);
  return r;
}
inline Vec from_numbers(Numbers numbers) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(numbers.q[i]);
  return r;
}
#endif

// The tree over the sixteen chains: i and i + 8, then + 4, + 2, + 1.
#if defined(__AVX2__)
inline float sum(Vec a) {
  const __m256 eight = fold(a);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#elif defined(SPLIT_NEON_KERNELS)
inline float sum(Vec a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
#elif !defined(SPLIT_WASM_KERNELS)
inline float sum(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
#endif

// Keeps it in its registers, where GCC would read memory again for each use.
inline void hold([[maybe_unused]] Vec& a) {
#if defined(__AVX512F__)
  asm("" : "+v"(a.v));
#elif defined(__AVX2__)
  asm("" : "+x"(a.a), "+x"(a.b));
#endif
}

// Asks for as many bytes as are read now, 16 KiB behind them. To L2: L1 has too few requests to
// memory.
inline void prefetch_ahead(const std::byte* at, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + 16384 + line, 0, 2);
}

template <DType dtype>
inline Vec load_as(const std::byte* p) {
  if constexpr (dtype == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (dtype == DType::kF16) return load_f16(p);
  if constexpr (dtype == DType::kBF16) return load_bf16(p);
}
// The first n < 16 values, zeros behind them.
template <DType dtype>
inline Vec load_as(const std::byte* p, size_t n) {
  constexpr size_t kSize = dtype == DType::kF32 ? 4 : 2;
  alignas(64) std::byte bytes[16 * kSize] = {};
  __builtin_memcpy(bytes, p, n * kSize);
  return load_as<dtype>(bytes);
}

}  // namespace split::SPLIT_ISA
