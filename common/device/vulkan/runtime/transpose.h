// Transposing a part of a matrix, a vector of each of a few rows at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace split::vulkan {

// Vectors of 16 bytes, whose lanes a and b a shuffle takes in turn.
template <typename T>
struct Lanes;
template <>
struct Lanes<uint16_t> {
  using Vector [[gnu::vector_size(16)]] = uint16_t;
  static Vector low(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Vector high(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct Lanes<uint32_t> {
  using Vector [[gnu::vector_size(16)]] = uint32_t;
  static Vector low(Vector a, Vector b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  static Vector high(Vector a, Vector b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
};

// Columns [first, first + count) of a matrix [inner, columns] as rows of `stride` elements, zeros
// behind the first `inner`.
template <typename T>
void transpose_rows(const std::byte* from, size_t inner, size_t columns, size_t first, size_t count,
                    size_t stride, std::byte* to) {
  using Vector = typename Lanes<T>::Vector;
  constexpr size_t kLanes = sizeof(Vector) / sizeof(T);
  constexpr size_t kTile = 8 * kLanes;  // in K: rows of both sides stay in cache
  const auto one = [&](size_t k, size_t m) {
    std::memcpy(to + (m * stride + k) * sizeof(T), from + (k * columns + first + m) * sizeof(T),
                sizeof(T));
  };
  for (size_t k0 = 0; k0 < inner; k0 += kTile) {
    const size_t end = std::min(inner, k0 + kTile);
    for (size_t m = 0; m < count; m += kLanes) {
      size_t k = k0;
      for (; m + kLanes <= count && k + kLanes <= end; k += kLanes) {
        // Rows i and i + half of it are interleaved until columns are rows.
        Vector a[kLanes], b[kLanes];
        for (size_t i = 0; i < kLanes; ++i) {
          std::memcpy(&a[i], from + ((k + i) * columns + first + m) * sizeof(T), sizeof(Vector));
        }
        for (size_t done = 1; done < kLanes; done *= 2) {
          for (size_t i = 0; i < kLanes / 2; ++i) {
            b[2 * i] = Lanes<T>::low(a[i], a[i + kLanes / 2]);
            b[2 * i + 1] = Lanes<T>::high(a[i], a[i + kLanes / 2]);
          }
          std::copy(b, b + kLanes, a);
        }
        for (size_t i = 0; i < kLanes; ++i) {
          std::memcpy(to + ((m + i) * stride + k) * sizeof(T), &a[i], sizeof(Vector));
        }
      }
      for (; k < end; ++k) {
        for (size_t i = m; i < std::min(count, m + kLanes); ++i) one(k, i);
      }
    }
  }
  for (size_t m = 0; m < count; ++m) {
    std::memset(to + (m * stride + inner) * sizeof(T), 0, (stride - inner) * sizeof(T));
  }
}

}  // namespace split::vulkan
