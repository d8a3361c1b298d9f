// Functions made of float additions, subtractions and products, comparisons, whole numbers and bits
// alone: no fused multiply-add, no division, nothing of a library. Each rounds as it is written, so
// that every processor and device gives the same bits. small() and clean() keep denormals out,
// which some devices take for zeros.
#pragma once

#include "device/cpu/kernels/glsl_shim.h"

namespace split::exact {

using glsl::floatBitsToInt;
using glsl::intBitsToFloat;

inline float at_least(float x, int bits) {
  return (floatBitsToInt(x) & 0x7fffffff) < bits ? 0.0f : x;
}
inline constexpr int kSmall = 0x26800000;  // 2^-50
// An operand of a product: 0 below 2^-50, so that a product of two is 0 or 2^-100 at least.
inline float small(float x) { return at_least(x, kSmall); }
inline constexpr int kClean = 0x0d000000;  // 2^-101
// Makes a number that is stored +0 below 2^-101.
inline float clean(float x) { return at_least(x, kClean); }

// 1 / x for 2^-100 < x < 2^100, to 1.7 * 2^-24.
inline float recip_x(float x) {
  float y = intBitsToFloat(0x7ef311c7 - floatBitsToInt(x));
  y = y + y * (1.0f - x * y);
  y = y + y * (1.0f - x * y);
  y = y + y * (1.0f - x * y);
  return y + y * (1.0f - x * y);
}
// 1 / sqrt(x) for 2^-100 < x < 2^100, to 2.0 * 2^-24.
inline float rsqrt_x(float x) {
  float y = intBitsToFloat(0x5f3759df - (floatBitsToInt(x) >> 1));
  const float h = 0.5f * x;
  y = y * (1.5f - h * (y * y));
  y = y * (1.5f - h * (y * y));
  y = y * (1.5f - h * (y * y));
  return y * (1.5f - h * (y * y));
}
// e^x for |x| <= 60, beyond as there, to 1.4 * 2^-24.
inline float exp_x(float x) {
  const float c = glsl::min(glsl::max(x, -60.0f), 60.0f);
  const float k = glsl::floor(c * 1.442695041f + 0.5f);
  const float r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = r * 1.393370113e-3f + 8.363181008e-3f;
  p = p * r + 4.166646446e-2f;
  p = p * r + 1.666657697e-1f;
  p = p * r + 0.5f;
  const float e = ((r * r) * p + r) + 1.0f;
  return intBitsToFloat(floatBitsToInt(e) + static_cast<int>(k) * (1 << 23));
}
// ln x for 1 <= x <= 2: x = 2^k (1 + f), as log_f of the op table.
inline float log_x(float x) {
  const int bits = floatBitsToInt(x) - 0x3f3504f3;
  const int k = bits >> 23;
  const float f = intBitsToFloat(bits - k * (1 << 23) + 0x3f3504f3) - 1.0f;
  float p = f * 7.149589131e-2f - 1.157123348e-1f;
  p = f * p + 1.166157803e-1f;
  p = f * p - 1.241104931e-1f;
  p = f * p + 1.424993041e-1f;
  p = f * p - 1.666848018e-1f;
  p = f * p + 2.000070764e-1f;
  p = f * p - 2.499998905e-1f;
  p = f * p + 3.333333119e-1f;
  const float s = f * f;
  const float y = f + (s * -0.5f + (s * f) * p);
  return static_cast<float>(k) * 0.693359375f + (static_cast<float>(k) * -2.12194440e-4f + y);
}
inline float sigmoid_x(float x) { return recip_x(1.0f + exp_x(-x)); }
inline float silu_x(float x) { return x * sigmoid_x(x); }
// ln(1 + e^x). Kahan's way to ln(1 + u): the error of 1 + u is divided out.
inline float softplus_x(float x) {
  const float u = exp_x(-glsl::abs(x));
  const float w = 1.0f + u;
  const float rest = w == 1.0f ? u : (log_x(w) * u) * recip_x(w - 1.0f);
  return glsl::max(x, 0.0f) + rest;
}

}  // namespace split::exact
