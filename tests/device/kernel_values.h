// Values for tests of kernels.
#pragma once

#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "support/op_references.h"
#include "tensor/op.h"

namespace split::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<Op> ops_of(OpKind kind) {
  std::vector<Op> ops;
  for (size_t i = 0; i < op_table().size(); ++i) {
    if (op_table()[i].kind == kind) ops.push_back(static_cast<Op>(i));
  }
  return ops;
}

inline constexpr float kSpecial[] = {
    0.0f,    -0.0f,  1.0f,    -1.0f,   87.0f,  -87.0f,  kInfinity, -kInfinity, 1e-30f,
    -1e-30f, 1e-45f, -1e-45f, 1e30f,   -1e30f, 3.4e38f, -3.4e38f,  0.624999f,  0.625001f,
    4.2f,    -4.2f,  88.72f,  -88.72f, 103.9f, -104.1f, NAN};

// max and min of NaN are what the hardware makes of them, in GLSL too.
inline bool takes_nan(std::string_view name) {
  return name != "relu" && name != "max" && name != "min" && name != "maximum" && name != "minimum";
}

// Every special value in turn, then values over many magnitudes; NaN only where `nan`.
inline std::vector<float> values(size_t n, uint32_t seed, bool nan) {
  std::mt19937 random(seed);
  std::vector<float> result;
  for (size_t i = 0; i < n; ++i) {
    const size_t pick = (i + seed) % (2 * std::size(kSpecial));
    const auto uniform = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
    float value = pick % 2 == 1 || n == 1
                      ? kSpecial[pick / 2]
                      : std::ldexp(uniform, static_cast<int>(random() % 12) - 4);
    if (std::isnan(value) && !nan) value = 0.3f;
    result.push_back(value);
  }
  return result;
}
inline std::vector<float> ordinary(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> result;
  for (size_t i = 0; i < n; ++i) {
    result.push_back(static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
  }
  return result;
}

}  // namespace split::test
