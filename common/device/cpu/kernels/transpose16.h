// A square of sixteen by sixteen elements, turned.
#pragma once

#include <cstddef>

namespace split {
namespace {  // compiled for one instruction set in each file that includes it

// Row: a vector of sixteen elements. Rows i and i + 8 side by side, four times over.
template <typename Row>
inline void transpose16(Row (&rows)[16]) {
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    Row next[16];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      const Row a = rows[i], b = rows[i + 8];
      next[2 * i] =
          __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                14, 30, 15, 31);
    }
    for (size_t i = 0; i < 16; ++i) rows[i] = next[i];
  }
}

}  // namespace
}  // namespace split
