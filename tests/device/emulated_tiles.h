// AMX's instructions as plain loops, so that the kernels of matmul_amx.h can be tested on any x86:
// in place of device/cpu/kernels/amx_instructions.h. Denormals are what the processor is set to, as
// the kernels do.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace split {
extern const RoundedKernels kRoundedEmulated;
}

namespace split::SPLIT_ISA {
namespace {

struct EmulatedTile {
  size_t height = 0, bytes = 0;  // none: not configured
  std::byte data[16][64];
};
thread_local EmulatedTile emulated_tiles[8];

template <int tile>
void tile_zero() {
  CHECK(emulated_tiles[tile].height > 0);
  std::memset(emulated_tiles[tile].data, 0, sizeof emulated_tiles[tile].data);
}
template <int tile>
void tile_load(const void* from, size_t stride) {
  tile_zero<tile>();
  EmulatedTile& to = emulated_tiles[tile];
  for (size_t r = 0; r < to.height; ++r) {
    std::memcpy(to.data[r], static_cast<const std::byte*>(from) + r * stride, to.bytes);
  }
}
template <int tile>
void tile_store(void* to, size_t stride) {
  const EmulatedTile& from = emulated_tiles[tile];
  CHECK(from.height > 0);
  for (size_t r = 0; r < from.height; ++r) {
    std::memcpy(static_cast<std::byte*>(to) + r * stride, from.data[r], from.bytes);
  }
}
inline float emulated_number(const EmulatedTile& tile, size_t row, size_t i) {
  uint16_t bits;
  std::memcpy(&bits, tile.data[row] + 2 * i, sizeof bits);
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}
template <int sums, int rows, int columns>
void tile_multiply() {
  EmulatedTile& y = emulated_tiles[sums];
  const EmulatedTile &x = emulated_tiles[rows], &w = emulated_tiles[columns];
  CHECK(y.height == x.height && y.bytes == w.bytes && x.bytes == 4 * w.height);
  for (size_t r = 0; r < y.height; ++r) {
    for (size_t c = 0; c < y.bytes / 4; ++c) {
      float chains[2] = {0, 0}, total;
      for (size_t k = 0; k < 2 * w.height; ++k) {
        chains[k % 2] = std::fma(emulated_number(x, r, k), emulated_number(w, k / 2, 2 * c + k % 2),
                                 chains[k % 2]);
      }
      std::memcpy(&total, y.data[r] + 4 * c, sizeof total);
      total += chains[0] + chains[1];
      std::memcpy(y.data[r] + 4 * c, &total, sizeof total);
    }
  }
}
inline void tile_release() {
  for (EmulatedTile& tile : emulated_tiles) tile.height = 0;
}

struct TileConfig {
  size_t heights[8] = {}, bytes[8] = {};

  void set(size_t tile, size_t height, size_t row_bytes) {
    CHECK(height <= 16 && row_bytes <= 64 && row_bytes % 4 == 0);
    heights[tile] = height;
    bytes[tile] = row_bytes;
  }
  void load() const {
    for (size_t i = 0; i < 8; ++i) {
      emulated_tiles[i].height = heights[i];
      emulated_tiles[i].bytes = bytes[i];
    }
  }
};

}  // namespace
}  // namespace split::SPLIT_ISA
