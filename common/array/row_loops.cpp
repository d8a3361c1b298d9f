#include "array/row_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "device/cpu/kernels/glsl_shim.h"
#include "tensor/types.h"

// GLSL's functions that rows of library.def use beside those of ops.def. Whole numbers wrap.
namespace split::glsl::library {

using split::glsl::abs, split::glsl::min, split::glsl::max;
using uint = uint32_t;
// NOLINTBEGIN(readability-identifier-naming): GLSL's names, and words of library.def
inline float ceil(float a) { return __builtin_ceilf(a); }
inline float trunc(float a) { return __builtin_truncf(a); }
inline float roundEven(float a) { return __builtin_rintf(a); }
inline int abs(int a) { return a < 0 ? -a : a; }
inline int64_t abs(int64_t a) { return a < 0 ? -a : a; }
inline int64_t min(int64_t a, int64_t b) { return b < a ? b : a; }
inline int64_t max(int64_t a, int64_t b) { return a < b ? b : a; }
template <typename T>
inline T quotient(T a, T b) {
  return b == 0 ? 0 : b == -1 ? -a : a / b;
}
#define FUNC(type, name, parameters, ...) \
  [[maybe_unused]] static inline type name parameters __VA_ARGS__
#include "tensor/ops.def"
#define FUNC(type, name, parameters, ...) \
  [[maybe_unused]] static inline type name parameters __VA_ARGS__
#define precise  // for GLSL: no other order of the sum; here there is none
#include "tensor/library.def"
#undef precise

using array::RowLoops;

template <typename T>
constexpr T LOWEST = std::numeric_limits<T>::lowest();
// NOLINTEND(readability-identifier-naming)

template <typename T, typename Out, typename Body>
void each(const void* x, const void* z, const void* c, void* out, size_t n, Body body) {
  const auto *left = static_cast<const T*>(x), *right = static_cast<const T*>(z);
  const auto* truth = static_cast<const int32_t*>(c);
  auto* __restrict to = static_cast<Out*>(out);
  for (size_t i = 0; i < n; ++i) {
    to[i] = body(left[i], right == nullptr ? left[i] : right[i], truth == nullptr ? 0 : truth[i]);
  }
}

// A reduction by its body: all its loops.
template <typename T, typename Body>
void add_reduction(RowLoops& all, Op op, const Body&) {
  all.join[op] = [](const void* x, const void* z, const void*, void* out, size_t n) {
    each<T, T>(x, z, nullptr, out, n, [](T acc, T more, int) { return Body::both(acc, more); });
  };
  all.start[op] = [](const void*, size_t, size_t rows, void* out) {
    std::fill_n(static_cast<T*>(out), rows, Body::first());
  };
  all.reduce[op] = [](const void* x, size_t inner, size_t rows, void* out) {
    for (size_t r = 0; r < rows; ++r) {
      T acc = Body::first();
      const T* const row = static_cast<const T*>(x) + r * inner;
      for (size_t i = 0; i < inner; ++i) acc = Body::both(acc, row[i]);
      static_cast<T*>(out)[r] = acc;
    }
  };
  all.scan[op] = [](const void* x, size_t inner, size_t rows, void* out) {
    for (size_t r = 0; r < rows; ++r) {
      T acc = Body::first();
      for (size_t i = r * inner; i < (r + 1) * inner; ++i) {
        acc = Body::both(acc, static_cast<const T*>(x)[i]);
        static_cast<T*>(out)[i] = acc;
      }
    }
  };
}

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

#define LOOP(name, type, result, forward)                                                  \
  all.pointwise[Op::k_##name] = [](const void* a, const void* b, const void* t, void* out, \
                                   size_t n) {                                             \
    each<type, result>(a, b, t, out, n,                                                    \
                       []([[maybe_unused]] type x, [[maybe_unused]] type z,                \
                          [[maybe_unused]] int c) -> result { return forward; });          \
  };

template <typename T>
RowLoops common() {
  RowLoops all;
#define COMPARE(name, forward) LOOP(name, T, int32_t, forward)
#define TERNARY(name, forward, dx, dz) LOOP(name, T, T, forward)
#include "tensor/library.def"
  all.order = [](const void* x, size_t inner, size_t rows, bool descending, int64_t* out) {
    for (size_t r = 0; r < rows; ++r) {
      const T* const row = static_cast<const T*>(x) + r * inner;
      int64_t* const to = out + r * inner;
      std::iota(to, to + inner, int64_t{0});
      std::stable_sort(to, to + inner, [&](int64_t i, int64_t k) {
        const T a = row[descending ? k : i], b = row[descending ? i : k];
        return is_nan(b) ? !is_nan(a) : a < b;
      });
    }
  };
  return all;
}

#define REDUCTION(name, type, start, combine)                \
  {                                                          \
    struct Body {                                            \
      static type first() { return start; }                  \
      static type both(type acc, type x) { return combine; } \
    };                                                       \
    add_reduction<type>(all, Op::k_reduce_##name, Body{});   \
  }

RowLoops floats() {
  RowLoops all = common<float>();
#define REDUCE(name, start, combine, gradient) REDUCTION(name, float, start, combine)
#include "tensor/ops.def"
#ifndef SPLIT_TRAINING_ROWS  // training needs no other ones
#define UNARY(name, forward, gradient) LOOP(name, float, float, forward)
#define BINARY(name, forward, dx, dz) LOOP(name, float, float, forward)
#define REDUCE(name, start, combine, gradient) REDUCTION(name, float, start, combine)
#include "tensor/library.def"
#endif
  return all;
}

// NOLINTBEGIN(readability-identifier-naming): words of library.def
template <typename T>
RowLoops wholes() {
  RowLoops all = common<T>();
  static constexpr T ZERO = 0, ONE = 1, BITS = 8 * sizeof(T);
  static constexpr T LOWEST = std::numeric_limits<T>::lowest(),
                     HIGHEST = std::numeric_limits<T>::max();
#define WHOLE(name, forward) LOOP(name, T, T, forward)
#define WHOLE_UNARY(name, forward) LOOP(name, T, T, forward)
#define WHOLE_BINARY(name, forward) LOOP(name, T, T, forward)
#define WHOLE_TERNARY(name, forward)                        \
  LOOP(name, T, T, static_cast<T>([](int c, int x, int z) { \
         return forward;                                    \
       }(c, static_cast<int>(x), static_cast<int>(z))))
#define WHOLE_REDUCE(name, start, combine) REDUCTION(name, T, start, combine)
#include "tensor/library.def"
  return all;
}
// NOLINTEND(readability-identifier-naming)

}  // namespace split::glsl::library

namespace split::array {
namespace {

template <typename From, typename To>
To number(From value, DType type) {
  if (type == DType::kBool) return static_cast<To>(value != 0 ? 1 : 0);
  if (type == DType::kU8) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<To>(whole & 0xff);
  }
  if constexpr (std::is_same_v<To, float>) {
    const auto real = static_cast<float>(value);
    return type == DType::kF16    ? f16_to_f32(f32_to_f16(real))
           : type == DType::kBF16 ? bf16_to_f32(f32_to_bf16(real))
                                  : real;
  } else if constexpr (std::is_same_v<From, float>) {
    // A number that does not fit becomes the nearest that does; a NaN is 0.
    if (!(value == value)) return 0;
    constexpr float kMost = std::is_same_v<To, int64_t> ? 9223372036854775808.0f : 2147483648.0f;
    return value >= kMost   ? std::numeric_limits<To>::max()
           : value < -kMost ? std::numeric_limits<To>::lowest()
                            : static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// Calls with a number of the type in which one of `dtype` is computed with.
void with_number(DType dtype, const auto& call) {
  switch (computing(dtype)) {
    case DType::kF32:
      return call(float{});
    case DType::kI64:
      return call(int64_t{});
    default:
      return call(int32_t{});
  }
}

template <typename From, typename To>
void cast_numbers(const void* from, void* to, DType type, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    static_cast<To*>(to)[i] = number<From, To>(static_cast<const From*>(from)[i], type);
  }
}

}  // namespace

const RowLoops& row_loops(DType computing) {
  static const RowLoops kFloats = glsl::library::floats();
  static const RowLoops kInts = glsl::library::wholes<int32_t>();
#ifdef SPLIT_TRAINING_ROWS
  static const RowLoops kWides = glsl::library::common<int64_t>();
#else
  static const RowLoops kWides = glsl::library::wholes<int64_t>();
#endif
  return computing == DType::kF32 ? kFloats : computing == DType::kI64 ? kWides : kInts;
}

void cast_loop(const void* from, DType from_type, void* to, DType to_type, size_t n) {
  with_number(from_type, [&](auto x) {
    with_number(to_type,
                [&](auto y) { cast_numbers<decltype(x), decltype(y)>(from, to, to_type, n); });
  });
}

}  // namespace split::array
