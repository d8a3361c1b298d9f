// The matrix products, by packed matrices and by transposed ones in place. For kernels.cpp only,
// which is compiled once for each instruction set; Vec (vec.h) is what differs between them.
#pragma once

#include <type_traits>
#include <utility>

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {
namespace {

// Vecs of sums that the registers hold beside weights and a factor, and the rows of a tile; dot
// products hold a Vec of each row too, and at most so many columns at once. Up to some tiles of
// rows each tile widens weights anew.
#if defined(__AVX512F__)
constexpr size_t kSums = 24, kTileRows = 8;  // 32 registers
constexpr size_t kDotSums = 24, kDotRows = 8, kDotColumns = 4;
constexpr size_t kTilesUnwidened = 4;
#elif defined(__AVX2__)
constexpr size_t kSums = 6, kTileRows = 6;  // 8: a Vec is two of 16
constexpr size_t kDotSums = 4, kDotRows = 2, kDotColumns = 4;
constexpr size_t kTilesUnwidened = 4;
#elif defined(SPLIT_WASM_KERNELS)
constexpr size_t kSums = 3, kTileRows = 2;  // 4: a Vec is four of 16
constexpr size_t kDotSums = 2, kDotRows = 2, kDotColumns = 1;
constexpr size_t kTilesUnwidened = 1;
#else
constexpr size_t kSums = 4, kTileRows = 2;
constexpr size_t kDotSums = 4, kDotRows = 2, kDotColumns = 4;
constexpr size_t kTilesUnwidened = 4;
#endif

// A part of a product: y [rows, 16 Vecs] += or = x [rows, depth] times w [depth, 16 Vecs].
struct Part {
  const float* x;
  size_t x_stride;
  size_t rows;
  const std::byte* w;
  size_t w_stride;  // bytes from one k to the next
  size_t depth;
  float* y;
  size_t y_stride;
  bool accumulate;
  // With several passes, the next part comes from memory during all of them: each k asks for
  // `next_step` bytes of it. With one (0), a part comes from memory as it is read.
  const std::byte* next;
  size_t next_step;
};

// Vecs of `rows` rows whose sums the registers hold.
constexpr size_t vecs_at_once(size_t rows, size_t vecs) {
  return kSums / rows < vecs ? kSums / rows : vecs;
}
// How often all_rows() goes through a part.
constexpr size_t passes_of(size_t rows, size_t vecs) {
  size_t passes = 0;
  while (rows > 0) {
    const size_t tile = rows < kTileRows ? rows : kTileRows, at_once = vecs_at_once(tile, vecs);
    passes += (vecs + at_once - 1) / at_once;
    rows -= tile;
  }
  return passes;
}

// `Rows` rows of a part from `row` on, one chain of k for each result.
template <DType dtype, size_t Rows, size_t Vecs>
inline void tile(Part& part, size_t row, size_t column) {
  const float* x = part.x + row * part.x_stride;
  const std::byte* w = part.w + column * size_of(dtype);
  float* y = part.y + row * part.y_stride + column;
  Vec sums[Rows][Vecs];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vecs; ++v) {
      sums[r][v] = part.accumulate ? load(y + r * part.y_stride + 16 * v) : zero();
    }
  }
  for (size_t k = 0; k < part.depth; ++k, w += part.w_stride, part.next += part.next_step) {
    if (part.next_step == 0) {
      // 3 KiB ahead, which the hardware's prefetcher does not reach.
      for (size_t line = 0; line < Vecs * 16 * size_of(dtype); line += 64) {
        __builtin_prefetch(w + 3072 + line);
      }
    }
    for (size_t line = 0; line < part.next_step; line += 64) {
      __builtin_prefetch(part.next + line, 0, 2);
    }
    if constexpr (Rows == 1) {  // few registers: weights are not kept
      const Vec factor = broadcast(x[k]);
      for (size_t v = 0; v < Vecs; ++v) {
        sums[0][v] = fma(factor, load_as<dtype>(w + v * 16 * size_of(dtype)), sums[0][v]);
      }
      continue;
    }
    Vec weights[Vecs];
    for (size_t v = 0; v < Vecs; ++v) weights[v] = load_as<dtype>(w + v * 16 * size_of(dtype));
    for (size_t r = 0; r < Rows; ++r) {
      const Vec factor = broadcast(x[r * part.x_stride + k]);
      for (size_t v = 0; v < Vecs; ++v) sums[r][v] = fma(factor, weights[v], sums[r][v]);
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vecs; ++v) store(y + r * part.y_stride + 16 * v, sums[r][v]);
  }
}

// All Vecs of `Rows` rows, as many at once as the registers hold.
template <DType dtype, size_t Rows, size_t Vecs>
inline void tiles(Part& part, size_t row, size_t column) {
  constexpr size_t kAtOnce = vecs_at_once(Rows, Vecs);
  tile<dtype, Rows, kAtOnce>(part, row, column);
  if constexpr (kAtOnce < Vecs) {
    tiles<dtype, Rows, Vecs - kAtOnce>(part, row, column + 16 * kAtOnce);
  }
}

// All rows from `row` on, in tiles of Rows and then of fewer.
template <DType dtype, size_t Vecs, size_t Rows = kTileRows>
void all_rows(Part& part, size_t row = 0) {
  for (; row + Rows <= part.rows; row += Rows) tiles<dtype, Rows, Vecs>(part, row, 0);
  if constexpr (Rows > 1) {
    if (row < part.rows) all_rows<dtype, Vecs, Rows - 1>(part, row);
  }
}

// Widens [depth, columns], dense, to floats, `to` columns of them: zeros behind `columns`.
template <DType dtype>
void widen_panel(const std::byte* w, size_t depth, size_t columns, float* panel, size_t to) {
  for (size_t k = 0; k < depth; ++k, w += columns * size_of(dtype), panel += to) {
    size_t c = 0;
    for (; c + 16 <= columns; c += 16) store(panel + c, load_as<dtype>(w + c * size_of(dtype)));
    if (c < columns) store(panel + c, load_as<dtype>(w + c * size_of(dtype), columns - c));
  }
}

// The panel of `Vecs` Vecs, the last perhaps not whole.
template <DType dtype, size_t Vecs>
void one_panel(const MatmulTask& task, const std::byte* w, size_t columns, float* y) {
  // Values that are not F32 are widened once for many rows, and on the way for few.
  const bool in_place =
      columns == 16 * Vecs && (dtype == DType::kF32 || task.rows <= kTilesUnwidened * kTileRows);
  const size_t stride = columns * size_of(dtype), passes = passes_of(task.rows, Vecs);
  const size_t next_step = passes == 1 ? 0 : (stride + passes - 1) / passes;
  for (size_t k = 0; k < task.inner; k += kPanelDepth) {
    const size_t depth = task.inner - k < kPanelDepth ? task.inner - k : kPanelDepth;
    Part part{.x = task.x + k,
              .x_stride = task.inner,
              .rows = task.rows,
              .w = w + k * stride,
              .w_stride = stride,
              .depth = depth,
              .y = y,
              .y_stride = task.y_stride,
              .accumulate = k > 0,
              .next = w + (k + depth) * stride,
              .next_step = next_step};
    if (in_place) {
      all_rows<dtype, Vecs>(part);
      continue;
    }
    widen_panel<dtype>(part.w, depth, columns, task.panel, 16 * Vecs);
    part.w = reinterpret_cast<const std::byte*>(task.panel);
    part.w_stride = 16 * Vecs * sizeof(float);
    all_rows<DType::kF32, Vecs>(part);
  }
}

template <DType dtype>
void matmul_typed(const MatmulTask& task) {
  static_assert(kPanelColumns == 3 * 16);
  for (size_t c = 0; c < task.columns; c += kPanelColumns) {
    const size_t first = task.first + c;
    const size_t columns = task.width - first < kPanelColumns ? task.width - first : kPanelColumns;
    const std::byte* w = task.w + first * task.inner * size_of(dtype);
    if (columns > 32) {
      one_panel<dtype, 3>(task, w, columns, task.y + c);
    } else if (columns > 16) {
      one_panel<dtype, 2>(task, w, columns, task.y + c);
    } else {
      one_panel<dtype, 1>(task, w, columns, task.y + c);
    }
  }
}

// f(0), ..., f(N - 1), each a constant: arrays indexed by these can lie in registers.
template <size_t N, typename F>
inline void each_of(const F& f) {
  [&]<size_t... I>(std::index_sequence<I...>) { (f(std::integral_constant<size_t, I>()), ...); }
  (std::make_index_sequence<N>());
}

template <DType dtype, size_t Rows, size_t Columns>
void dot_tile(const MatmulTask& task, size_t row, size_t column) {
  Vec sums[Rows][Columns];
  const auto each_sum = [&](const auto& f) {
    each_of<Rows>([&](auto r) { each_of<Columns>([&](auto c) { f(r, c); }); });
  };
  each_sum([&](auto r, auto c) { sums[r][c] = zero(); });
  const std::byte* w = task.w + (task.first + column) * task.inner * size_of(dtype);
  const float* x = task.x + row * task.inner;
  const auto add = [&](const auto& weights_at, const auto& values_at) {
    Vec weights[Columns];
    each_of<Columns>([&](auto c) { weights[c] = weights_at(w + c * task.inner * size_of(dtype)); });
    each_of<Rows>([&](auto r) {
      Vec values = values_at(x + r * task.inner);
      hold(values);
      each_of<Columns>([&](auto c) { sums[r][c] = fma(values, weights[c], sums[r][c]); });
    });
  };
  size_t k = 0;
  for (; k + 16 <= task.inner; k += 16) {
    // The first pass comes from memory.
    constexpr size_t kSize = Columns * size_of(dtype);
    if (row == 0) prefetch_ahead(w + k * kSize, 16 * kSize);
    add([&](const std::byte* from) { return load_as<dtype>(from + k * size_of(dtype)); },
        [&](const float* from) { return load(from + k); });
  }
  if (const size_t rest = task.inner - k; rest > 0) {
    add([&](const std::byte* from) { return load_as<dtype>(from + k * size_of(dtype), rest); },
        [&](const float* from) {
          return load_as<DType::kF32>(reinterpret_cast<const std::byte*>(from + k), rest);
        });
  }
  each_sum(
      [&](auto r, auto c) { task.y[(row + r) * task.y_stride + column + c] = sum(sums[r][c]); });
}

// Takes all rows from `row` on, in tiles of Rows and then of half as many. Some tiles read a few
// columns one after another, while L1 has these.
template <DType dtype, size_t Rows = kDotRows>
void dot_rows(const MatmulTask& task, size_t row = 0) {
  constexpr size_t kColumns = kDotSums / Rows < kDotColumns ? kDotSums / Rows : kDotColumns;
  constexpr size_t kTogether = 8;  // rows, which are in L1 too
  while (row + Rows <= task.rows) {
    const size_t left = task.rows - row;
    const size_t end = row + (left < kTogether ? left / Rows * Rows : kTogether);
    size_t column = 0;
    for (; column + kColumns <= task.columns; column += kColumns) {
      for (size_t r = row; r < end; r += Rows) dot_tile<dtype, Rows, kColumns>(task, r, column);
    }
    for (; column < task.columns; ++column) {
      for (size_t r = row; r < end; r += Rows) dot_tile<dtype, Rows, 1>(task, r, column);
    }
    row = end;
  }
  if constexpr (Rows > 1) {
    if (row < task.rows) dot_rows<dtype, Rows / 2>(task, row);
  }
}

void matmul(const MatmulTask& task) {
  switch (task.dtype) {
    case DType::kF16:
      return matmul_typed<DType::kF16>(task);
    case DType::kBF16:
      return matmul_typed<DType::kBF16>(task);
    default:
      return matmul_typed<DType::kF32>(task);
  }
}

void matmul_transposed(const MatmulTask& task) {
  switch (task.dtype) {
    case DType::kF16:
      return dot_rows<DType::kF16>(task);
    case DType::kBF16:
      return dot_rows<DType::kBF16>(task);
    default:
      return dot_rows<DType::kF32>(task);
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
