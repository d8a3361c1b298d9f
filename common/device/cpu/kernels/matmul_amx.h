// The products of matmul_bf16_fma.h by the tiles of AMX, bit for bit. For kernels.cpp only.
//
// Eight tiles of 16 rows of 64 bytes: 0 to 3 are the sums of two by two blocks of 16 rows and 16
// columns, 4 and 5 the two blocks of rows, 6 and 7 the blocks of columns.
#pragma once

#include "device/cpu/kernels/rounding.h"
#ifdef SPLIT_EMULATED_TILES
#include "emulated_tiles.h"
#else
#include "device/cpu/kernels/amx_instructions.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// The shapes of this thread's tiles: tiles of rows are as high as the number of rows.
class TileShapes {
 public:
  TileShapes() = default;
  ~TileShapes() { tile_release(); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

  void set(size_t upper, size_t lower) {
    if (upper == upper_ && lower == lower_) return;
    upper_ = upper;
    lower_ = lower;
    TileConfig config;
    const size_t heights[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (size_t tile = 0; tile < 8; ++tile) config.set(tile, heights[tile], 64);
    config.load();
  }

 private:
  size_t upper_ = 0, lower_ = 0;
};

// Some rows by some steps of a strip.
struct TileBlock {
  const std::byte* x;  // tiles of sixteen rows
  size_t x_stride;     // bytes from such rows to the next
  size_t rows;
  const std::byte* w;  // pairs, two tiles a step; or blocks
  size_t steps;
  float* y;
  size_t y_stride;               // floats
  bool first;                    // y is not set yet
  const std::byte* x_then = {};  // the rows after these, for many rows in BF16
};

inline void fetch_tile(const std::byte* tile) {
  for (size_t line = 0; line < kTileBytes; line += 64) __builtin_prefetch(tile + line);
}

// y += x w of up to 32 rows, whole chains in the tiles. With many rows, the next steps' rows come
// to L1 meanwhile.
template <bool two, bool many>
inline void chain_tiles(const TileBlock& b) {
  constexpr size_t kFetched = 2;  // steps
  const size_t stride = b.y_stride * sizeof(float);
  float* const lower = b.y + kTileHeight * b.y_stride;
  if (b.first) {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (two) tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(b.y, stride), tile_load<1>(b.y + 16, stride);
    if constexpr (two) tile_load<2>(lower, stride), tile_load<3>(lower + 16, stride);
  }
  for (size_t s = 0; s < b.steps; ++s) {
    const std::byte *x = b.x + s * kTileBytes, *w = b.w + s * 2 * kTileBytes;
    const std::byte* const then = s + kFetched < b.steps
                                      ? x + kFetched * kTileBytes
                                      : b.x_then + (s + kFetched - b.steps) * kTileBytes;
    tile_load<4>(x, 64);
    tile_load<6>(w, 64), tile_load<7>(w + kTileBytes, 64);
    tile_multiply<0, 4, 6>();
    if constexpr (many) fetch_tile(then);
    tile_multiply<1, 4, 7>();
    if constexpr (two) {
      tile_load<5>(x + b.x_stride, 64);
      tile_multiply<2, 5, 6>();
      if constexpr (many) fetch_tile(then + b.x_stride);
      tile_multiply<3, 5, 7>();
    }
  }
  tile_store<0>(b.y, stride), tile_store<1>(b.y + 16, stride);
  if constexpr (two) tile_store<2>(lower, stride), tile_store<3>(lower + 16, stride);
}

// Steps of K that many rows take through all strips before the next ones: 768 KiB of 512 rows,
// which stay in L2.
constexpr size_t kPartSteps = 24;

// Strips in BF16: kAtOnce steps of one, 16 KiB, which stay in L1, by all rows, then the next ones.
inline void chain_strips(const StepTask& task, TileShapes& shapes) {
  constexpr size_t kAtOnce = 8, kStepBytes = 2 * kTileBytes, kPair = 2 * kTileHeight;
  const size_t steps = steps_of(task.inner), x_stride = steps * kTileBytes;
  const size_t blocks = (task.rows + kPair - 1) / kPair, part = blocks > 1 ? kPartSteps : steps;
  struct Place {
    size_t part = 0, column = 0, from = 0;  // a part's first step, a strip's column, the next step
  };
  const auto end = [&](const Place& at) { return steps - at.part < part ? steps : at.part + part; };
  const auto after = [&](Place at) {
    at.from += kAtOnce;
    if (at.from < end(at)) return at;
    at.column += kStripColumns;
    if (at.column < task.columns) return Place{at.part, at.column, at.part};
    return Place{at.part + part, 0, at.part + part};
  };
  const auto weights = [&](size_t column, size_t step) {
    return task.w + ((task.first + column) / kStripColumns * steps + step) * kStepBytes;
  };
  for (Place at, then; at.from < steps; at = then) {
    then = after(at);
    const bool last = then.from >= steps;  // another task's strips follow
    const std::byte* w_then = last ? weights(task.columns, 0) : weights(then.column, then.from);
    const std::byte* const x_then = task.x + (last ? 0 : then.from) * kTileBytes;
    const size_t count = end(at) - at.from < kAtOnce ? end(at) - at.from : kAtOnce;
    // The next steps come from memory while these are multiplied: a share of them with each rows.
    size_t ahead = task.cached ? 0 : kAtOnce;
    const size_t share = (kAtOnce + blocks - 1) / blocks;
    for (size_t row = 0; row < task.rows; row += kPair) {
      const size_t rows = task.rows - row;
      const std::byte* const x = task.x + row / kTileHeight * x_stride + at.from * kTileBytes;
      const TileBlock block{x,
                            x_stride,
                            rows,
                            weights(at.column, at.from),
                            count,
                            task.y + row * task.y_stride + at.column,
                            task.y_stride,
                            at.from == 0,
                            rows > kPair ? x + 2 * x_stride : x_then};
      for (size_t step = 0; step < share && ahead > 0; ++step, --ahead, w_then += kStepBytes) {
        for (size_t line = 0; line < kStepBytes; line += 64) {
          blocks > 1 ? __builtin_prefetch(w_then + line, 0, 2) : __builtin_prefetch(w_then + line);
        }
      }
      if (rows > kTileHeight) {
        shapes.set(kTileHeight, rows < kPair ? rows - kTileHeight : kTileHeight);
        blocks > 1 ? chain_tiles<true, true>(block) : chain_tiles<true, false>(block);
      } else {
        shapes.set(rows, rows);
        chain_tiles<false, false>(block);
      }
    }
  }
}

// The factor that removes the scales of rows and of numbers from a block's sums.
constexpr float unscaled(DType dtype) {
  return (dtype == DType::kQ8_0 ? __builtin_ldexpf(1.0f, kScaledDown) : 1.0f) / kRowScale;
}

// y = x w of up to 32 rows by a strip in blocks: the sums of each step times its scales. While a
// step is multiplied the next one's numbers are expanded and the last one's sums are added, in
// parts between the instructions of tiles: a processor overlaps no more than it looks ahead, which
// is less than a step. Nothing is read right after it was written, which a tile would wait for.
template <DType dtype, bool two>
inline void scaled_tiles(const TileBlock& b, std::byte* scratch) {
  constexpr size_t kBytes = step_bytes(dtype), kScales = step_scales(dtype);
  constexpr size_t kPairBytes = 2 * kTileBytes, kSumBytes = (two ? 4 : 2) * kTileBytes;
  static_assert(2 * (kPairBytes + kSumBytes) <= kStepScratch);
  const auto pairs = [&](size_t s) { return scratch + s % 2 * kPairBytes; };
  const auto sums = [&](size_t s) { return scratch + 2 * kPairBytes + s % 2 * kSumBytes; };
  for (size_t r = 0; r < b.rows; ++r) {
    for (size_t v = 0; v < kVecsOfStrip; ++v) store(b.y + r * b.y_stride + 16 * v, zero());
  }
  // Sixteen columns of the upper rows, the others, then both for the lower rows.
  const auto add = [&](size_t s, size_t tile) __attribute__((always_inline)) {
    const bool upper = tile < 2;
    const size_t rows = !upper ? b.rows - kTileHeight : two ? kTileHeight : b.rows;
    const Vec scales = mul(load_f16(b.w + s * kBytes + tile % 2 * 32), broadcast(unscaled(dtype)));
    const auto* from = reinterpret_cast<const float*>(sums(s) + tile * kTileBytes);
    float* to = b.y + (upper ? 0 : kTileHeight * b.y_stride) + tile % 2 * 16;
    for (size_t r = 0; r < rows; ++r, from += 16, to += b.y_stride) {
      store(to, fma(load(from), scales, load(to)));
    }
  };
  expand_step<dtype, 3, true>(b.w + kScales, pairs(0));
  for (size_t s = 0; s < b.steps; ++s) {
    const std::byte* const x = b.x + s * kTileBytes;
    const std::byte* const w = pairs(s);
    std::byte* const to = sums(s);
    const size_t ahead = s + 1 < b.steps ? s + 1 : s;
    const auto expand = [&](size_t quarter) __attribute__((always_inline)) {
      expand_quarter<dtype, 3, true>(b.w + ahead * kBytes + kScales, quarter, pairs(s + 1));
    };
    const auto add_last = [&](size_t tile) __attribute__((always_inline)) {
      if (s > 0) add(s - 1, tile);
    };
    tile_load<4>(x, 64), tile_load<6>(w, 64);
    tile_zero<0>(), tile_multiply<0, 4, 6>();
    expand(0);
    tile_load<7>(w + kTileBytes, 64);
    tile_zero<1>(), tile_multiply<1, 4, 7>();
    if constexpr (two) {
      tile_load<5>(x + b.x_stride, 64);
      add_last(0);
      tile_store<0>(to, 64);
      tile_zero<2>(), tile_multiply<2, 5, 6>();
      expand(1);
      tile_store<1>(to + kTileBytes, 64);
      add_last(1);
      tile_zero<3>(), tile_multiply<3, 5, 7>();
      expand(2);
      tile_store<2>(to + 2 * kTileBytes, 64);
      add_last(2);
      expand(3);
      tile_store<3>(to + 3 * kTileBytes, 64);
      add_last(3);
    } else {
      expand(1);
      add_last(0);
      tile_store<0>(to, 64);
      expand(2), expand(3);
      tile_store<1>(to + kTileBytes, 64);
      add_last(1);
    }
  }
  for (size_t tile = 0; tile < (two ? 4 : 2); ++tile) add(b.steps - 1, tile);
}

// One strip in blocks.
template <DType dtype>
inline void scaled_strip(const StepTask& task, const std::byte* w, float* y, TileShapes& shapes) {
  constexpr size_t kRows = 2 * kTileHeight;
  const size_t steps = steps_of(task.inner), x_stride = steps * kTileBytes;
  // New shapes take long: with more rows all tiles are whole, and missing rows are not added.
  const size_t height = task.rows < kTileHeight ? task.rows : kTileHeight;
  shapes.set(height, height);
  for (size_t row = 0; row < task.rows; row += kRows) {
    const size_t rows = task.rows - row < kRows ? task.rows - row : kRows;
    const std::byte* const x = task.x + row / kTileHeight * x_stride;
    const TileBlock block{x,   x_stride, rows, w, steps, y + row * task.y_stride, task.y_stride,
                          true};
    rows > kTileHeight ? scaled_tiles<dtype, true>(block, task.scratch)
                       : scaled_tiles<dtype, false>(block, task.scratch);
  }
}

template <DType dtype>
void matmul_tiles_typed(const StepTask& task) {
  TileShapes shapes;
  if constexpr (dtype == DType::kBF16) {
    chain_strips(task, shapes);
  } else {
    for (size_t c = 0; c < task.columns; c += kStripColumns) {
      const std::byte* const w =
          task.w + (task.first + c) / kStripColumns * steps_of(task.inner) * step_bytes(dtype);
      scaled_strip<dtype>(task, w, task.y + c, shapes);
    }
  }
}

void matmul_tiles(const StepTask& task) {
  const FlushDenormals flush;
  switch (task.dtype) {
    case DType::kQ8_0:
      return matmul_tiles_typed<DType::kQ8_0>(task);
    case DType::kQ4_0:
      return matmul_tiles_typed<DType::kQ4_0>(task);
    default:
      return matmul_tiles_typed<DType::kBF16>(task);
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
