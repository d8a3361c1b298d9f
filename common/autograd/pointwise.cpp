#include "autograd/pointwise.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace split {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLn2 = 0.6931471806f, kPi = 3.141592654f;

}  // namespace

Tensor not_equal(const Tensor& x, const Tensor& z) { return logical_not(x == z); }
Tensor logical_not(const Tensor& x) { return x == 0; }
Tensor logical_and(const Tensor& x, const Tensor& z) {
  return bitwise_and(cast(x, DType::kBool), cast(z, DType::kBool));
}
Tensor logical_or(const Tensor& x, const Tensor& z) {
  return bitwise_or(cast(x, DType::kBool), cast(z, DType::kBool));
}
Tensor logical_xor(const Tensor& x, const Tensor& z) {
  return bitwise_xor(cast(x, DType::kBool), cast(z, DType::kBool));
}
Tensor isnan(const Tensor& x) { return not_equal(x, x); }
Tensor isinf(const Tensor& x) { return abs(x) == kInfinity; }
Tensor isfinite(const Tensor& x) { return abs(x) < kInfinity; }
Tensor signbit(const Tensor& x) {
  return is_floating(x.dtype()) ? copysign(1.0f, cast(x, DType::kF32)) < 0 : x < 0;
}
Tensor isclose(const Tensor& x, const Tensor& z, float rtol, float atol, bool equal_nan) {
  const Tensor near = logical_and(abs(x - z) <= atol + rtol * abs(z), isfinite(z));
  const Tensor close = logical_or(x == z, near);
  return equal_nan ? logical_or(close, logical_and(isnan(x), isnan(z))) : close;
}

Tensor frac(const Tensor& of) {
  return in_floats([](const Tensor& x) { return x - trunc(x); }, of);
}
Tensor deg2rad(const Tensor& x) { return x * (kPi / 180); }
Tensor rad2deg(const Tensor& x) { return x * (180 / kPi); }
Tensor log2(const Tensor& of) {
  return in_floats([](const Tensor& x) { return natural_log(x) * (1 / kLn2); }, of);
}
Tensor log10(const Tensor& of) {
  return in_floats([](const Tensor& x) { return natural_log(x) * 0.4342944819f; }, of);
}
Tensor erfc(const Tensor& of) {
  return in_floats([](const Tensor& x) { return 1.0f - erf(x); }, of);
}
// Near 0 its series: the quotient's gradient would cancel.
Tensor sinc(const Tensor& of) {
  return in_floats(
      [](const Tensor& x) {
        const Tensor p = x * kPi, near = abs(p) < 0.5f;
        const Tensor s = square(select(near, p, 0.0f)), safe = select(near, 1.0f, p);
        const Tensor series =
            1.0f + s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880))));
        return select(near, series, sin(safe) / safe);
      },
      of);
}
// By psi(x) = psi(x + 1) - 1 / x up to 6, then its asymptotic series; reflected below 0.
Tensor digamma(const Tensor& of) {
  return in_floats(
      [](const Tensor& of) {
        const Tensor low = of <= 0.0f;
        Tensor x = select(low, 1.0f - of, of), y = 0.0f;
        for (int i = 0; i < 6; ++i) {
          const Tensor small = x < 6.0f;
          y = y - select(small, 1.0f / x, 0.0f);
          x = select(small, x + 1.0f, x);
        }
        const Tensor r = 1.0f / x, s = r * r;
        y = y + natural_log(x) - 0.5f * r - s * (1.0f / 12 - s * (1.0f / 120 - s * (1.0f / 252)));
        return select(low, y - kPi / tan(kPi * select(low, of, 0.5f)), y);
      },
      of);
}
Tensor logit(const Tensor& of, std::optional<float> eps) {
  return in_floats(
      [&](const Tensor& of) {
        const Tensor x = eps ? clamp(of, *eps, 1 - *eps) : of;
        return natural_log(x / (1.0f - x));
      },
      of);
}
Tensor round(const Tensor& of, int decimals) {
  const auto tens = static_cast<float>(std::pow(10.0, std::abs(decimals)));
  return in_floats(
      [&](const Tensor& x) {
        return decimals >= 0 ? round(x * tens) / tens : round(x / tens) * tens;
      },
      of);
}
Tensor nan_to_num(const Tensor& x, float nan, std::optional<float> posinf,
                  std::optional<float> neginf) {
  if (!is_floating(x.dtype())) return x;
  const Tensor finite = select(x == kInfinity, posinf.value_or(kInfinity),
                               select(x == -kInfinity, neginf.value_or(-kInfinity), x));
  return select(isnan(x), nan, finite);
}
Tensor clamp(const Tensor& x, const Tensor& least, const Tensor& most) {
  return select(most < least, most, select(x < least, least, select(x > most, most, x)));
}
Tensor invert(const Tensor& x) {
  return x.dtype() == DType::kBool ? logical_not(x) : bitwise_not(x);
}

Tensor relu6(const Tensor& x) { return hardtanh(x, 0, 6); }
Tensor leaky_relu(const Tensor& x, float slope) { return select(x > 0.0f, x, x * slope); }
Tensor elu(const Tensor& of, float alpha, float scale) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor above = x > 0.0f;
        return select(above, x * scale, expm1(select(above, 0.0f, x)) * (alpha * scale));
      },
      of);
}
Tensor selu(const Tensor& x) { return elu(x, 1.673263242f, 1.050700987f); }
Tensor celu(const Tensor& of, float alpha) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor above = x > 0.0f;
        return select(above, x, expm1(select(above, 0.0f, x / alpha)) * alpha);
      },
      of);
}
Tensor mish(const Tensor& of) {
  return in_floats([](const Tensor& x) { return x * tanh(softplus(x)); }, of);
}
Tensor softplus(const Tensor& of, float beta, float threshold) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor far = x * beta > threshold;
        return select(far, x, log1p(exp(select(far, 0.0f, x * beta))) / beta);
      },
      of);
}
Tensor softsign(const Tensor& of) {
  return in_floats([](const Tensor& x) { return x / (1.0f + abs(x)); }, of);
}
Tensor hardtanh(const Tensor& x, float least, float most) {
  return select(x <= least, least, select(x >= most, most, x));
}
Tensor hardsigmoid(const Tensor& of) {
  return in_floats(
      [](const Tensor& x) {
        return select(x <= -3.0f, 0.0f, select(x >= 3.0f, 1.0f, x * (1.0f / 6) + 0.5f));
      },
      of);
}
Tensor hardswish(const Tensor& of) {
  return in_floats(
      [](const Tensor& x) {
        const Tensor near = select(abs(x) >= 3.0f, 0.0f, x);
        return select(x <= -3.0f, x * 0.0f,
                      select(x >= 3.0f, x, near * (near + 3.0f) * (1.0f / 6)));
      },
      of);
}
Tensor logsigmoid(const Tensor& of) {
  return in_floats([](const Tensor& x) { return -softplus(-x); }, of);
}
Tensor tanhshrink(const Tensor& of) {
  return in_floats([](const Tensor& x) { return x - tanh(x); }, of);
}
Tensor hardshrink(const Tensor& x, float lambda) { return select(abs(x) <= lambda, 0.0f, x); }
Tensor softshrink(const Tensor& x, float lambda) {
  return select(x > lambda, x - lambda, select(x < -lambda, x + lambda, select(x == x, 0.0f, x)));
}
Tensor threshold(const Tensor& x, float from, float value) { return select(x <= from, value, x); }
Tensor glu(const Tensor& of, int64_t axis) {
  return in_floats(
      [&](const Tensor& x) {
        const int64_t n = x.dims()[axis_of(x.dims(), axis, "glu")];
        return slice(x, axis, 0, n / 2) * sigmoid(slice(x, axis, n / 2, n));
      },
      of);
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  Dims dims(x.dims().size(), 1);
  if (x.dims().size() > 1) dims[1] = count_of(weight.dims());
  return select(x > 0.0f, x, reshape(weight, dims) * x);
}

Tensor add(const Tensor& x, const Tensor& z, float alpha) {
  if (alpha == 1) return add(x, z);
  return in_floats([&](const Tensor& x, const Tensor& z) { return x + z * alpha; }, x, z);
}
Tensor sub(const Tensor& x, const Tensor& z, float alpha) {
  return alpha == 1 ? sub(x, z) : add(x, z, -alpha);
}
Tensor fmax(const Tensor& x, const Tensor& z) { return select(logical_or(x >= z, isnan(z)), x, z); }
Tensor fmin(const Tensor& x, const Tensor& z) { return select(logical_or(x <= z, isnan(z)), x, z); }
Tensor logaddexp(const Tensor& x, const Tensor& z) {
  return in_floats(
      [](const Tensor& x, const Tensor& z) {
        return maximum(x, z) + log1p(exp(-abs(select(x == z, 0.0f, x - z))));
      },
      x, z);
}
Tensor logaddexp2(const Tensor& x, const Tensor& z) {
  return in_floats(
      [](const Tensor& x, const Tensor& z) {
        return maximum(x, z) + log1p(exp2(-abs(select(x == z, 0.0f, x - z)))) * (1 / kLn2);
      },
      x, z);
}
Tensor rest(const Tensor& x, const Tensor& z) {
  return is_floating(promoted(std::vector{x, z})) ? fmod(x, z) : x - quotient(x, z) * z;
}
Tensor remainder(const Tensor& x, const Tensor& z) {
  const auto of = [](const Tensor& x, const Tensor& z) {
    const Tensor r = rest(x, z);
    return select(logical_and(r, not_equal(r < 0, z < 0)), r + z, r);
  };
  return is_floating(promoted(std::vector{x, z})) ? in_floats(of, x, z) : of(x, z);
}
Tensor divide(const Tensor& x, const Tensor& z, std::string_view rounding) {
  if (rounding.empty()) return div(x, z);
  const bool floors = rounding == "floor";
  if (!floors && rounding != "trunc") {
    throw Error(ErrorKind::kShape,
                cat("[divide] expected \"\", \"trunc\" or \"floor\", got \"", rounding, "\""));
  }
  if (!is_floating(promoted(std::vector{x, z}))) {
    return quotient(floors ? x - remainder(x, z) : x, z);
  }
  return in_floats(
      [&](const Tensor& x, const Tensor& z) {
        return round((x - (floors ? remainder(x, z) : fmod(x, z))) / z);
      },
      x, z);
}
Tensor ldexp(const Tensor& x, const Tensor& z) {
  return in_floats([](const Tensor& x, const Tensor& z) { return x * exp2(z); }, x, z);
}
Tensor lerp(const Tensor& x, const Tensor& z, const Tensor& weight) {
  return in_floats(
      [](const Tensor& x, const Tensor& z, const Tensor& w) { return x + w * (z - x); }, x, z,
      weight);
}
Tensor addcmul(const Tensor& x, const Tensor& t, const Tensor& z, float value) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t, const Tensor& z) { return x + value * t * z; }, x, t,
      z);
}
Tensor addcdiv(const Tensor& x, const Tensor& t, const Tensor& z, float value) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t, const Tensor& z) { return x + value * t / z; }, x, t,
      z);
}

}  // namespace split
