// Sixteen floats and sixteen int8 of WebAssembly's SIMD, for vec.h.
#pragma once

#include <wasm_simd128.h>

#include "tensor/shape.h"

namespace split::SPLIT_ISA {

struct Vec {
  v128_t v[4];
};
inline Vec broadcast(float x) {
  const v128_t four = wasm_f32x4_splat(x);
  return {{four, four, four, four}};
}
inline Vec zero() { return broadcast(0); }
inline Vec load(const float* p) {
  return {
      {wasm_v128_load(p), wasm_v128_load(p + 4), wasm_v128_load(p + 8), wasm_v128_load(p + 12)}};
}
inline void store(float* p, Vec x) {
  for (int i = 0; i < 4; ++i) wasm_v128_store(p + 4 * i, x.v[i]);
}
// Rounds once where relaxed-simd does (edge_client/web/page/start.js tests that), else twice.
inline v128_t fma4(v128_t x, v128_t y, v128_t z) {
#if defined(__wasm_relaxed_simd__)
  return wasm_f32x4_relaxed_madd(x, y, z);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(x, y), z);
#endif
}
inline Vec fma(Vec x, Vec y, Vec z) {
  for (int i = 0; i < 4; ++i) z.v[i] = fma4(x.v[i], y.v[i], z.v[i]);
  return z;
}
// Four finite halves, each widened with its sign: exponents and fractions go where a float has
// them, and 2^112 makes up for the exponents' other zero.
inline v128_t finite_halves(v128_t x) {
  const v128_t bits = wasm_v128_and(wasm_i32x4_shl(x, 13), wasm_i32x4_splat(-0x70002000));
  return wasm_f32x4_mul(bits, wasm_f32x4_splat(0x1p112f));
}
inline Vec load_f16(const void* p) {
  const v128_t low = wasm_v128_load(p), high = wasm_v128_load(static_cast<const char*>(p) + 16);
  return {{finite_halves(wasm_i32x4_extend_low_i16x8(low)),
           finite_halves(wasm_i32x4_extend_high_i16x8(low)),
           finite_halves(wasm_i32x4_extend_low_i16x8(high)),
           finite_halves(wasm_i32x4_extend_high_i16x8(high))}};
}
inline Vec load_bf16(const void* p) {
  const v128_t low = wasm_v128_load(p), high = wasm_v128_load(static_cast<const char*>(p) + 16);
  Vec r = {{wasm_u32x4_extend_low_u16x8(low), wasm_u32x4_extend_high_u16x8(low),
            wasm_u32x4_extend_low_u16x8(high), wasm_u32x4_extend_high_u16x8(high)}};
  for (v128_t& v : r.v) v = wasm_i32x4_shl(v, 16);
  return r;
}
inline void store_f16(void* p, Vec x) {
  float lanes[16];
  store(lanes, x);
  uint16_t bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = f32_to_f16(lanes[i]);
  __builtin_memcpy(p, bits, sizeof bits);
}
inline Vec mul(Vec x, Vec y) {
  for (int i = 0; i < 4; ++i) x.v[i] = wasm_f32x4_mul(x.v[i], y.v[i]);
  return x;
}
inline Vec max(Vec x, Vec y) {  // pmax(a, b) is a < b ? b : a
  for (int i = 0; i < 4; ++i) x.v[i] = wasm_f32x4_pmax(y.v[i], x.v[i]);
  return x;
}
inline Vec low_bits_as_exponent(Vec x) {
  for (v128_t& v : x.v) v = wasm_i32x4_shl(v, 23);
  return x;
}
inline Vec from_numbers(v128_t q) {
  const v128_t low = wasm_i16x8_extend_low_i8x16(q), high = wasm_i16x8_extend_high_i8x16(q);
  Vec r = {{wasm_i32x4_extend_low_i16x8(low), wasm_i32x4_extend_high_i16x8(low),
            wasm_i32x4_extend_low_i16x8(high), wasm_i32x4_extend_high_i16x8(high)}};
  for (v128_t& v : r.v) v = wasm_f32x4_convert_i32x4(v);
  return r;
}

inline Vec add(Vec x, Vec y) {
  for (int i = 0; i < 4; ++i) x.v[i] = wasm_f32x4_add(x.v[i], y.v[i]);
  return x;
}
// Reads sixteen words: their low and their high halves as bf16, and four bits as a number less 8.
inline Vec low_bf16(const std::byte* at) {
  Vec r;
  for (int i = 0; i < 4; ++i) r.v[i] = wasm_i32x4_shl(wasm_v128_load(at + 16 * i), 16);
  return r;
}
inline Vec high_bf16(const std::byte* at) {
  const v128_t high = wasm_i32x4_splat(-0x10000);
  Vec r;
  for (int i = 0; i < 4; ++i) r.v[i] = wasm_v128_and(wasm_v128_load(at + 16 * i), high);
  return r;
}
inline Vec nibbles(const std::byte* at, unsigned shift) {
  Vec r;
  for (int i = 0; i < 4; ++i) {
    const v128_t bits = wasm_u32x4_shr(wasm_v128_load(at + 16 * i), shift);
    const v128_t number = wasm_v128_and(bits, wasm_i32x4_splat(15));
    r.v[i] = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(number, wasm_i32x4_splat(8)));
  }
  return r;
}

// Sixteen int8.
using Numbers = v128_t;
inline Numbers load_numbers(const std::byte* p) { return wasm_v128_load(p); }

// The tree over the sixteen chains.
inline float sum(Vec a) {
  const v128_t four =
      wasm_f32x4_add(wasm_f32x4_add(a.v[0], a.v[2]), wasm_f32x4_add(a.v[1], a.v[3]));
  const v128_t two = wasm_f32x4_add(four, wasm_i32x4_shuffle(four, four, 2, 3, 2, 3));
  return wasm_f32x4_extract_lane(two, 0) + wasm_f32x4_extract_lane(two, 1);
}

}  // namespace split::SPLIT_ISA
