// Pointwise functions that are made of rows, by PyTorch's names. Each is one kernel once it is
// fused, has its gradient by its rows, and is rounded once where its inputs are halves. What a
// branch that is not taken would make infinite is computed of a harmless number: a gradient of 0
// times infinity is NaN.
#pragma once

#include <optional>
#include <string_view>

#include "autograd/functions.h"

namespace split {

// Word x mod 4 of Philox-4x32-10 by the counter (x / 4, draw, 0, 0) and the key (seed, 0); I32.
Tensor philox(const Tensor& draw, const Tensor& x, const Tensor& seed);

// --- Truth

Tensor not_equal(const Tensor& x, const Tensor& z);
Tensor logical_not(const Tensor& x);
Tensor logical_and(const Tensor& x, const Tensor& z);
Tensor logical_or(const Tensor& x, const Tensor& z);
Tensor logical_xor(const Tensor& x, const Tensor& z);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
Tensor signbit(const Tensor& x);
Tensor isclose(const Tensor& x, const Tensor& z, float rtol = 1e-5f, float atol = 1e-8f,
               bool equal_nan = false);

// --- Of one tensor

Tensor frac(const Tensor& x);
Tensor deg2rad(const Tensor& x);
Tensor rad2deg(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor erfc(const Tensor& x);
Tensor sinc(const Tensor& x);
Tensor digamma(const Tensor& x);
Tensor logit(const Tensor& x, std::optional<float> eps = std::nullopt);
Tensor round(const Tensor& x, int decimals);
// Replaces NaN and the infinite ones, which stay where nothing is given for them.
Tensor nan_to_num(const Tensor& x, float nan = 0, std::optional<float> posinf = std::nullopt,
                  std::optional<float> neginf = std::nullopt);
Tensor clamp(const Tensor& x, const Tensor& least, const Tensor& most);
Tensor invert(const Tensor& x);  // bitwise_not; of BOOL logical_not

// --- Activations

Tensor relu6(const Tensor& x);
Tensor leaky_relu(const Tensor& x, float slope = 0.01f);
Tensor elu(const Tensor& x, float alpha = 1, float scale = 1);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, float alpha = 1);
Tensor mish(const Tensor& x);
Tensor softplus(const Tensor& x, float beta = 1, float threshold = 20);
Tensor softsign(const Tensor& x);
Tensor hardtanh(const Tensor& x, float least = -1, float most = 1);
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);
Tensor logsigmoid(const Tensor& x);
Tensor tanhshrink(const Tensor& x);
Tensor hardshrink(const Tensor& x, float lambda = 0.5f);
Tensor softshrink(const Tensor& x, float lambda = 0.5f);
Tensor threshold(const Tensor& x, float from, float value);
Tensor glu(const Tensor& x, int64_t axis = -1);
// weight [1] or one number a channel, of x [N, C, ...].
Tensor prelu(const Tensor& x, const Tensor& weight);

// --- Of two and three

Tensor add(const Tensor& x, const Tensor& z, float alpha);  // x + alpha z
Tensor sub(const Tensor& x, const Tensor& z, float alpha);
Tensor fmax(const Tensor& x, const Tensor& z);
Tensor fmin(const Tensor& x, const Tensor& z);
Tensor logaddexp(const Tensor& x, const Tensor& z);
Tensor logaddexp2(const Tensor& x, const Tensor& z);
// The rest of a division: fmod's towards zero, remainder's towards the smaller number.
Tensor rest(const Tensor& x, const Tensor& z);
Tensor remainder(const Tensor& x, const Tensor& z);
// "": exact; "trunc" and "floor" round, whole numbers to whole numbers.
Tensor divide(const Tensor& x, const Tensor& z, std::string_view rounding = "");
Tensor ldexp(const Tensor& x, const Tensor& z);
Tensor lerp(const Tensor& x, const Tensor& z, const Tensor& weight);
Tensor addcmul(const Tensor& x, const Tensor& t, const Tensor& z, float value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& t, const Tensor& z, float value = 1);

// --- Other names, as webgpu-torch has them

inline Tensor absolute(const Tensor& x) { return abs(x); }
inline Tensor arccos(const Tensor& x) { return acos(x); }
inline Tensor arccosh(const Tensor& x) { return acosh(x); }
inline Tensor arcsin(const Tensor& x) { return asin(x); }
inline Tensor arcsinh(const Tensor& x) { return asinh(x); }
inline Tensor arctan(const Tensor& x) { return atan(x); }
inline Tensor arctanh(const Tensor& x) { return atanh(x); }
inline Tensor arctan2(const Tensor& x, const Tensor& z) { return atan2(x, z); }
inline Tensor clip(const Tensor& x, const Tensor& least, const Tensor& most) {
  return clamp(x, least, most);
}
inline Tensor fix(const Tensor& x) { return trunc(x); }
inline Tensor multiply(const Tensor& x, const Tensor& z) { return mul(x, z); }
inline Tensor negative(const Tensor& x) { return neg(x); }
inline Tensor sgn(const Tensor& x) { return sign(x); }
inline Tensor subtract(const Tensor& x, const Tensor& z) { return sub(x, z); }

}  // namespace split
