// Products of rows rounded to bf16 by matrices in BF16 where VDPBF16PS multiplies two k at a time:
// twice what fused multiply-adds do, in an order of its own. For kernels.cpp only.
#pragma once

#include "device/cpu/rounding.h"

namespace split::SPLIT_ISA {
namespace {

// Some steps of some strips, and of the rows.
struct PairPart {
  const std::byte* x;  // tiles of sixteen rows
  size_t x_stride;     // bytes from such rows to the next
  const std::byte* w;
  size_t w_stride;  // bytes from a strip to the next
  size_t steps;
  bool first;  // y is not there yet
  float* y;
  size_t y_stride;  // floats
};

// y [Rows, Strips * kStripColumns] += x w of rows from `row` on, which are of one tile. A result is
// one chain over all steps: of each pair the odd k first, then the even, both fused.
template <size_t Rows, size_t Strips>
inline void chain_pairs(const PairPart& part, size_t row) {
  constexpr size_t kVecs = Strips * kVecsOfStrip;
  constexpr size_t kVecBytes = kPairs * 64, kBytes = step_bytes(DType::kBF16);
  const std::byte* x = part.x + row / kTileHeight * part.x_stride + row % kTileHeight * 64;
  const std::byte* w = part.w;
  float* const y = part.y + row * part.y_stride;
  __m512 sums[Rows][kVecs];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      sums[r][v] =
          part.first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * part.y_stride + 16 * v);
    }
  }
  for (size_t s = 0; s < part.steps; ++s, x += kTileBytes, w += kBytes) {
    // What is multiplied next comes from memory meanwhile. To L2: L1 has too few requests to it.
    for (size_t line = 0; row == 0 && line < Strips * kBytes; line += 64) {
      const std::byte* const next = w + part.steps * kBytes + line / kBytes * part.w_stride;
      __builtin_prefetch(next + line % kBytes, 0, 2);
    }
    for (size_t p = 0; p < kPairs; ++p) {
      __m512bh columns[kVecs];
      for (size_t v = 0; v < kVecs; ++v) {
        const std::byte* const at = w + v / kVecsOfStrip * part.w_stride;
        __builtin_memcpy(&columns[v], at + v % kVecsOfStrip * kVecBytes + p * 64,
                         sizeof columns[v]);
      }
      for (size_t r = 0; r < Rows; ++r) {
        int32_t pair = 0;
        __builtin_memcpy(&pair, x + r * 64 + p * sizeof pair, sizeof pair);
        const auto all = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(pair));
        for (size_t v = 0; v < kVecs; ++v) {
          sums[r][v] = _mm512_dpbf16_ps(sums[r][v], columns[v], all);
        }
      }
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      _mm512_storeu_ps(y + r * part.y_stride + 16 * v, sums[r][v]);
    }
  }
}

// Rows from `row` on, as many at a time as registers hold sums of.
template <size_t Rows, size_t Strips>
void rows_by_pairs(const PairPart& part, size_t rows, size_t row) {
  for (; rows - row >= Rows; row += Rows) chain_pairs<Rows, Strips>(part, row);
  if constexpr (Rows > 1) {
    if (row < rows) rows_by_pairs<Rows / 2, Strips>(part, rows, row);
  }
}

// Columns [first, first + Strips * kStripColumns) of a task by at most Rows rows at a time.
template <size_t Rows, size_t Strips>
void strips_by_pairs(const StepTask& task, size_t first) {
  constexpr size_t kBytes = step_bytes(DType::kBF16), kAtOnce = 12 / Strips;  // 24 KiB
  const size_t steps = steps_of(task.inner);
  const std::byte* const w = task.w + (task.first + first) / kStripColumns * steps * kBytes;
  for (size_t done = 0; done < steps; done += kAtOnce) {
    const size_t count = steps - done < kAtOnce ? steps - done : kAtOnce;
    const PairPart part{task.x + done * kTileBytes,
                        steps * kTileBytes,
                        w + done * kBytes,
                        steps * kBytes,
                        count,
                        done == 0,
                        task.y + first,
                        task.y_stride};
    rows_by_pairs<Rows, Strips>(part, task.rows, 0);
  }
}

// x as round_to_tiles makes it.
void matmul_pairs(const StepTask& task) {
  size_t c = 0;
  // Few rows have too few chains in one strip.
  for (; task.rows < 4 && c + 2 * kStripColumns < task.columns; c += 3 * kStripColumns) {
    strips_by_pairs<2, 3>(task, c);
  }
  for (; c < task.columns; c += kStripColumns) strips_by_pairs<8, 1>(task, c);
}

}  // namespace
}  // namespace split::SPLIT_ISA
