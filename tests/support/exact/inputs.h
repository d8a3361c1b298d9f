// The rows that tests of exact1 compute with, and the processor's ways with denormals.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "support/exact/specification.h"

namespace split::test {

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed * 2654435761u + 99991u) {}
  uint32_t next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 17, state_ ^= state_ << 5;
    return state_;
  }
  float unit() {
    return std::ldexp(static_cast<float>(static_cast<int>(next() >> 8) - 8388608), -23);
  }

 private:
  uint32_t state_;
};

// Activations as a step stores them: ordinary, large, tiny, denormals and zeros of both signs, or a
// few far above the rest.
enum class Kind : uint8_t { kOrdinary, kLarge, kTiny, kDenormal, kOutliers };
constexpr Kind kKinds[] = {Kind::kOrdinary, Kind::kLarge, Kind::kTiny, Kind::kDenormal,
                           Kind::kOutliers};
inline std::vector<float> activations(size_t n, uint32_t seed, Kind kind) {
  Numbers numbers(seed);
  std::vector<float> x(n);
  for (float& v : x) {
    const float u = numbers.unit();
    const uint32_t pick = numbers.next();
    switch (kind) {
      case Kind::kOrdinary:
        v = 3 * u;
        break;
      case Kind::kLarge:
        v = std::ldexp(u, 40);
        break;
      case Kind::kTiny:
        v = std::ldexp(u, -60);
        break;
      case Kind::kDenormal:
        v = pick % 3 == 2 ? u
                          : glsl::intBitsToFloat(static_cast<int>(
                                pick & (pick % 3 == 0 ? 0x807fffffu : 0x80000000u)));
        break;
      case Kind::kOutliers:
        v = pick % 61 == 0 ? 3000 * u : 0.01f * u;
        break;
    }
    v = exact::table::clean_f(v);
  }
  return x;
}

// Denormals as zeros, read and written, on this thread and those that it starts.
class Flush {
#if defined(__SSE__)
 public:
  explicit Flush(bool on) : saved_(_mm_getcsr()) { _mm_setcsr(on ? saved_ | 0x8040 : saved_); }
  ~Flush() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
 public:
  explicit Flush(bool) {}
#endif
};

}  // namespace split::test
