// How a matrix product is laid on lanes, or on matrix units.
#pragma once

#include "device/vulkan/tuning/tuner.h"
#include "tensor/shape.h"

namespace split::vulkan {

// Lanes that share a sum of a matrix, or of several that lie one behind the other.
inline uint32_t matmul_lanes(const Capabilities& device, int64_t inner, int64_t columns,
                             bool siblings) {
  constexpr int64_t kDeep = 2048, kFewColumns = 2048;
  if (device.small_tiles) return 8;
  return inner > kDeep ? 64 : columns <= (siblings ? 2 : 1) * kFewColumns ? 32 : 16;
}

// The rows that a matmul is done for: `block` rows at a time, of all rows there are when `wide`; a
// row whose sums, or splits of attention that it merges, come first; and the pairs in which lanes
// have the columns, 0 where they have them one by one.
struct MatmulUse {
  uint32_t block = 1;
  bool wide = false, sums = false, merges = false;
  size_t pairs = 0;
  DType dtype = DType::kF32;  // the matrix's type
  bool siblings = false;      // matrices lie one behind the other
};

// Layouts with the same order of sums: first the rule's.
std::vector<MatmulShape> matmul_layouts(const Capabilities& device, int64_t inner, int64_t columns,
                                        const MatmulUse& use);
// Shared memory in which the lanes of any of these exchange sums, of one row of a product and of
// the row before it.
size_t exchange_bytes();

// For a row rounded to int8: a lane has a segment of a column, columns_per_lane is a workgroup's.
MatmulShape int8_layout(const Capabilities& device, int64_t inner, bool pairs);
// Shared memory of a row in int8 and of the sums of segments; and memory of a rounded row.
size_t int8_row_bytes(int64_t inner);
size_t int8_rounded_bytes(int64_t inner);
inline constexpr uint32_t kUnitTile = 16;  // rows, columns and depth of what a unit multiplies

// How a tile of a product by matrix units is laid on subgroups. How K is cut, into how many parts
// of how long runs, fixes the order of the sums; the others only move work.
struct MatrixShape {
  uint32_t tiles_m = 4, tiles_n = 2;               // tiles of a subgroup
  uint32_t parts_m = 2, parts_n = 4, parts_k = 1;  // subgroups
  uint32_t step = 64;                              // K at a time
  // The kernel for few rows, and its rounds on their way.
  bool few = false;
  uint32_t depth = 1;
  uint32_t run = 8;  // chunks of K that a part has side by side, where parts do not share a step
  uint32_t split_k = 1;  // parts of K by workgroups of their own, where parts_k is 1
  uint32_t rows() const { return kUnitTile * parts_m * tiles_m; }
  uint32_t columns() const { return kUnitTile * parts_n * tiles_n; }
  uint32_t subgroups() const { return parts_m * parts_n * parts_k; }
};

// For many rows: lanes, and the rows and columns of their tile; by matrix units a subgroup's tiles
// and subgroups.
struct Int8Tile {
  uint32_t lanes = 0, rows = 0, columns = 0;
  MatrixShape units = {};
  bool by_units = false;
};
Int8Tile int8_tile(const Capabilities& device, DType dtype);

// The product of one matrix, or of two whose columns are made in pairs; or of some that lie one
// behind the other.
struct UnitProduct {
  int64_t inner = 0, columns = 0;
  uint32_t matrices = 1;
  bool siblings = false;
};
// Bytes in which the parts of K of a split product leave the sums of so many rows.
size_t split_bytes(const MatrixShape& shape, const UnitProduct& product, uint32_t rows);
// For a prompt of at most so many rows, and for one of any length, with the same sums; for
// generated rows, at most so many at a time.
MatrixShape short_shape(const Capabilities& device, const UnitProduct& product, uint32_t rows);
MatrixShape matrix_shape(const Capabilities& device, const UnitProduct& product, uint32_t rows);
MatrixShape thin_shape(const Capabilities& device, int64_t inner, int64_t columns, uint32_t rows);

}  // namespace split::vulkan
