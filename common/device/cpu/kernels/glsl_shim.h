// The GLSL functions that ops.def uses, for C++. Plain expressions only, so that a loop over a row
// of the table is vectorised; no function of the C++ library, whose inline copies would be compiled
// for one instruction set and called on another.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(SPLIT_WASM_KERNELS)
#include <wasm_simd128.h>
#endif

namespace split::glsl {

template <typename T>
inline T pick(bool c, T a, T b) {
  return c ? a : b;
}
inline float min(float a, float b) { return b < a ? b : a; }
inline float max(float a, float b) { return a < b ? b : a; }
inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline float abs(float a) { return __builtin_fabsf(a); }
inline float sqrt(float a) { return __builtin_sqrtf(a); }
inline float floor(float a) { return __builtin_floorf(a); }
#if defined(SPLIT_WASM_KERNELS) && defined(__wasm_relaxed_simd__)
inline float fma(float a, float b, float c) {  // else a call of the library
  return wasm_f32x4_extract_lane(
      wasm_f32x4_relaxed_madd(wasm_f32x4_splat(a), wasm_f32x4_splat(b), wasm_f32x4_splat(c)), 0);
}
inline constexpr bool kFusesProducts = true;  // a product and a sum are rounded once
#elif defined(SPLIT_WASM_KERNELS)
inline float fma(float a, float b, float c) { return a * b + c; }
inline constexpr bool kFusesProducts = false;
#else
inline constexpr bool kFusesProducts = true;
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#endif
// NOLINTBEGIN(readability-identifier-naming): GLSL's names
inline float intBitsToFloat(int bits) { return __builtin_bit_cast(float, bits); }
inline int floatBitsToInt(float value) { return __builtin_bit_cast(int, value); }
// NOLINTEND(readability-identifier-naming)

}  // namespace split::glsl
