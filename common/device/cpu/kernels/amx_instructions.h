// The instructions of AMX by number, because the compiler's own take literals only. For
// matmul_amx.h only; tests put plain loops in their place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace split::SPLIT_ISA {
namespace {

template <int tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int tile>
inline void tile_load(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void tile_store(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int sums, int rows, int columns>
inline void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(rows), "i"(columns));
}
inline void tile_release() { asm volatile("tilerelease"); }

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(size_t tile, size_t height, size_t bytes) {
    rows[tile] = static_cast<uint8_t>(height);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
  void load() const { asm volatile("ldtilecfg %0" ::"m"(*this)); }
};

}  // namespace
}  // namespace split::SPLIT_ISA
