// The products of step_products.h by the tiles of AMX, bit for bit. For kernels.cpp only.
//
// Eight tiles of 16 rows of 64 bytes: 0 to 3 are the sums of two by two blocks of 16 rows and 16
// columns, 4 and 5 the two blocks of rows, 6 and 7 those of columns.
#pragma once

#include "device/cpu/rounding.h"
#ifdef SPLIT_EMULATED_TILES
#include "emulated_tiles.h"
#else
#include "device/cpu/tile_instructions.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// The shapes of this thread's tiles: those of rows are as high as the rows are many.
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
  const std::byte* w;  // pairs, two tiles a step
  size_t steps;
  float* y;
  size_t y_stride;  // floats
  bool first;       // y is not there yet
};

// y += x w of up to 32 rows, whole chains in the tiles.
template <bool two>
inline void chain_tiles(const TileBlock& b) {
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
    tile_load<4>(x, 64);
    tile_load<6>(w, 64), tile_load<7>(w + kTileBytes, 64);
    tile_multiply<0, 4, 6>(), tile_multiply<1, 4, 7>();
    if constexpr (two) {
      tile_load<5>(x + b.x_stride, 64);
      tile_multiply<2, 5, 6>(), tile_multiply<3, 5, 7>();
    }
  }
  tile_store<0>(b.y, stride), tile_store<1>(b.y + 16, stride);
  if constexpr (two) tile_store<2>(lower, stride), tile_store<3>(lower + 16, stride);
}

// sums [2] tiles of up to 16 rows, of one step. Other tiles each second turn: a step then does not
// wait for the last one's sums.
inline void step_tiles(const std::byte* x, const std::byte* w, size_t turn, std::byte* sums) {
  const auto step = [&]<int left, int right>() {
    tile_load<4>(x, 64);
    tile_load<6>(w, 64), tile_zero<left>(), tile_multiply<left, 4, 6>();
    tile_load<7>(w + kTileBytes, 64), tile_zero<right>(), tile_multiply<right, 4, 7>();
    tile_store<left>(sums, 64), tile_store<right>(sums + kTileBytes, 64);
  };
  turn % 2 == 0 ? step.template operator()<0, 1>() : step.template operator()<2, 3>();
}
// The same of two blocks of rows, which share the loading of the numbers.
inline void step_tiles_twice(const std::byte* x, size_t x_stride, const std::byte* w,
                             std::byte* upper, std::byte* lower) {
  tile_load<4>(x, 64), tile_load<6>(w, 64);
  tile_zero<0>(), tile_multiply<0, 4, 6>();
  tile_load<7>(w + kTileBytes, 64), tile_zero<1>(), tile_multiply<1, 4, 7>();
  tile_load<5>(x + x_stride, 64), tile_zero<2>(), tile_multiply<2, 5, 6>();
  tile_zero<3>(), tile_multiply<3, 5, 7>();
  tile_store<0>(upper, 64), tile_store<1>(upper + kTileBytes, 64);
  tile_store<2>(lower, 64), tile_store<3>(lower + kTileBytes, 64);
}

// y [rows, 32] += the sums [steps][2] tiles of some steps times their scales; `first`: y is not
// there.
struct ScaledSums {
  const std::byte* sums;
  const std::byte* scales;
  size_t scales_stride;  // bytes from a step's to the next's
  size_t steps;
  size_t rows;
  float* y;
  size_t y_stride;  // floats
  bool first;
};
template <size_t Round>
inline void add_scaled(const ScaledSums& task) {
  for (size_t v = 0; v < kVecsOfStrip; ++v) {
    Vec factors[Round];
    for (size_t s = 0; s < Round; ++s) {
      factors[s] =
          s < task.steps ? load_f16(task.scales + s * task.scales_stride + 32 * v) : zero();
    }
    const auto add_rows = [&](size_t steps) {
      for (size_t r = 0; r < task.rows; ++r) {
        const auto* const tile =
            reinterpret_cast<const float*>(task.sums + v * kTileBytes + r * 64);
        float* const to = task.y + r * task.y_stride + 16 * v;
        Vec total = task.first ? zero() : load(to);
        for (size_t s = 0; s < steps; ++s) {
          total = fma(load(tile + s * 2 * kTileBytes / sizeof(float)), factors[s], total);
        }
        store(to, total);
      }
    };
    task.steps == Round ? add_rows(Round) : add_rows(task.steps);
  }
}

// One strip in BF16.
inline void chain_strip(const StepTask& task, const std::byte* w, float* y, TileShapes& shapes) {
  const size_t steps = steps_of(task.inner), x_stride = steps * kTileBytes;
  const size_t blocks = (task.rows + 2 * kTileHeight - 1) / (2 * kTileHeight);
  // Steps at once: 16 KiB, a part of L1; of many rows as many as a row of GPT-2 124M has, whose
  // sums are then never put aside.
  const size_t at_once = blocks == 1 ? 8 : 24, part = (at_once + blocks - 1) / blocks;
  for (size_t done = 0; done < steps; done += at_once, w += at_once * 2 * kTileBytes) {
    const size_t count = steps - done < at_once ? steps - done : at_once;
    for (size_t row = 0; row < task.rows; row += 2 * kTileHeight) {
      const size_t rows = task.rows - row;
      const TileBlock block{task.x + row / kTileHeight * x_stride + done * kTileBytes,
                            x_stride,
                            rows,
                            w,
                            count,
                            y + row * task.y_stride,
                            task.y_stride,
                            done == 0};
      // The next steps come from memory while these are multiplied: a part of them with each rows.
      const std::byte* const next = w + (at_once + row / (2 * kTileHeight) * part) * 2 * kTileBytes;
      for (size_t line = 0; line < part * 2 * kTileBytes; line += 64) {
        blocks > 1 ? __builtin_prefetch(next + line, 0, 2) : __builtin_prefetch(next + line);
      }
      if (rows > kTileHeight) {
        shapes.set(kTileHeight, rows < 2 * kTileHeight ? rows - kTileHeight : kTileHeight);
        chain_tiles<true>(block);
      } else {
        shapes.set(rows, rows);
        chain_tiles<false>(block);
      }
    }
  }
}

// One strip in blocks, of up to 16 rows. Nothing is read right after it was written, which a tile
// would wait for: numbers are expanded a step ahead, sums are added a step behind.
template <DType dtype>
inline void scaled_strip_few(const StepTask& task, const std::byte* w, float* y,
                             TileShapes& shapes) {
  constexpr size_t kBytes = step_bytes(dtype);
  const size_t steps = steps_of(task.inner);
  std::byte* const pairs = task.scratch;  // of two steps
  std::byte* const sums = pairs + 2 * 2 * kTileBytes;
  static_assert(2 * 2 * 2 * kTileBytes <= kStepScratch);
  const auto of = [](std::byte* two, size_t s) { return two + s % 2 * 2 * kTileBytes; };
  const auto expand = [&](size_t s) {
    if (s < steps) expand_step<dtype, 3>(w + s * kBytes + step_scales(dtype), of(pairs, s));
  };
  const auto add = [&](size_t s) {
    add_scaled<1>({of(sums, s), w + s * kBytes, kBytes, 1, task.rows, y, task.y_stride, s == 0});
  };
  shapes.set(task.rows, task.rows);
  expand(0);
  for (size_t s = 0; s < steps; ++s) {
    expand(s + 1);
    step_tiles(task.x + s * kTileBytes, of(pairs, s), s, of(sums, s));
    if (s > 0) add(s - 1);
  }
  add(steps - 1);
}

// Of more rows, 32 and three steps at a time; numbers are expanded a round ahead. The last rows
// have whole tiles too, whose shapes take long to change: what is no row is not added.
template <DType dtype>
inline void scaled_strip(const StepTask& task, const std::byte* w, float* y, TileShapes& shapes) {
  constexpr size_t kRound = 3, kRows = 2 * kTileHeight;
  constexpr size_t kBytes = step_bytes(dtype), kRoundBytes = kRound * 2 * kTileBytes;
  static_assert(4 * kRoundBytes <= kStepScratch);
  const size_t steps = steps_of(task.inner), x_stride = steps * kTileBytes;
  std::byte* const pairs = task.scratch;  // of two rounds
  std::byte* const upper = pairs + 2 * kRoundBytes;
  std::byte* const lower = upper + kRoundBytes;
  const auto pairs_of = [&](size_t s) { return pairs + s % (2 * kRound) * 2 * kTileBytes; };
  const auto expand = [&](size_t from) {
    for (size_t s = from; s < from + kRound && s < steps; ++s) {
      expand_step<dtype, 3>(w + s * kBytes + step_scales(dtype), pairs_of(s));
    }
  };
  shapes.set(kTileHeight, kTileHeight);
  expand(0);
  for (size_t done = 0; done < steps; done += kRound) {
    const size_t count = steps - done < kRound ? steps - done : kRound;
    expand(done + kRound);
    for (size_t row = 0; row < task.rows; row += kRows) {
      const size_t rows = task.rows - row < kRows ? task.rows - row : kRows;
      const std::byte* const x = task.x + row / kTileHeight * x_stride + done * kTileBytes;
      for (size_t s = 0; s < count; ++s) {
        const std::byte* const at = x + s * kTileBytes;
        const size_t to = s * 2 * kTileBytes;
        rows > kTileHeight
            ? step_tiles_twice(at, x_stride, pairs_of(done + s), upper + to, lower + to)
            : step_tiles(at, pairs_of(done + s), s, upper + to);
      }
      // The rows that come next lie in L2.
      const std::byte* const next =
          row + kRows < task.rows ? x + 2 * x_stride : task.x + (done + kRound) * kTileBytes;
      for (size_t line = 0; line < kRound * kTileBytes; line += 64) {
        __builtin_prefetch(next + line), __builtin_prefetch(next + x_stride + line);
      }
      ScaledSums sums{upper,       w + done * kBytes,       kBytes,        count,
                      kTileHeight, y + row * task.y_stride, task.y_stride, done == 0};
      if (rows <= kTileHeight) sums.rows = rows;
      add_scaled<kRound>(sums);
      if (rows <= kTileHeight) continue;
      sums.sums = lower;
      sums.rows = rows - kTileHeight;
      sums.y += kTileHeight * task.y_stride;
      add_scaled<kRound>(sums);
    }
  }
}

template <DType dtype>
void matmul_tiles_typed(const StepTask& task) {
  TileShapes shapes;
  for (size_t c = 0; c < task.columns; c += kStripColumns) {
    const std::byte* const w =
        task.w + (task.first + c) / kStripColumns * steps_of(task.inner) * step_bytes(dtype);
    if constexpr (dtype == DType::kBF16) {
      chain_strip(task, w, task.y + c, shapes);
    } else {
      task.rows <= kTileHeight ? scaled_strip_few<dtype>(task, w, task.y + c, shapes)
                               : scaled_strip<dtype>(task, w, task.y + c, shapes);
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
