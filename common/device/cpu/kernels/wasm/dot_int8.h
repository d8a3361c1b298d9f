// Sixteen int32 of WebAssembly's SIMD, for dot_int8.h, which says what they are.
#pragma once

#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {

template <DType dtype>
inline constexpr bool kHalfBytes = dtype == DType::kQ4_0 || dtype == DType::kQ4_K;

struct Ints {
  v128_t v[4];
};
struct Fours {
  v128_t v[4];
};
inline void hold(Ints&) {}
inline Ints add(Ints x, Ints y) {
  for (int i = 0; i < 4; ++i) x.v[i] = wasm_i32x4_add(x.v[i], y.v[i]);
  return x;
}
inline Ints all_of_pair(const int16_t (&x)[2], int32_t first, int32_t second) {
  const v128_t same = wasm_i32x4_splat(x[0] * first + x[1] * second);
  return {{same, same, same, same}};
}
inline Vec to_floats(Ints x) {
  Vec r;
  for (int i = 0; i < 4; ++i) r.v[i] = wasm_f32x4_convert_i32x4(x.v[i]);
  return r;
}
template <DType dtype>
inline Fours fours_at(const std::byte* at, size_t half) {
  Fours r;
  for (v128_t& v : r.v) {
    const v128_t q = wasm_v128_load(at);
    at += sizeof v;
    v = !kHalfBytes<dtype> ? q
        : half == 0        ? wasm_v128_and(q, wasm_i8x16_splat(15))
                           : wasm_u8x16_shr(q, 4);
  }
  return r;
}
template <DType dtype>
inline Ints add_fours(Ints sum, Fours w, int32_t x) {
  const v128_t same = wasm_i32x4_splat(x);
  for (int i = 0; i < 4; ++i) {
#if defined(__wasm_relaxed_simd__)
    // One operand has 7 bits: a number's magnitude, of which 128 does not come, or one without a
    // sign. The other takes its sign over.
    const bool has_sign = dtype == DType::kQ8_0;
    const v128_t negative = wasm_i8x16_shr(w.v[i], 7);
    const v128_t signed_same = wasm_i8x16_sub(wasm_v128_xor(same, negative), negative);
    sum.v[i] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
        has_sign ? signed_same : same, has_sign ? wasm_i8x16_abs(w.v[i]) : w.v[i], sum.v[i]);
#else
    const v128_t pairs = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(w.v[i]),
                                              wasm_i16x8_extend_low_i8x16(same));
    const v128_t others = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(w.v[i]),
                                               wasm_i16x8_extend_high_i8x16(same));
    // Each word has two products of the four: neighbours belong together.
    const v128_t even = wasm_i32x4_shuffle(pairs, others, 0, 2, 4, 6);
    const v128_t odd = wasm_i32x4_shuffle(pairs, others, 1, 3, 5, 7);
    sum.v[i] = wasm_i32x4_add(sum.v[i], wasm_i32x4_add(even, odd));
#endif
  }
  return sum;
}

}  // namespace split::SPLIT_ISA
