// The products of matmul_bf16_fma.h by VDPBF16PS, which multiplies two k at a time: twice as fast
// as fused multiply-adds, in an order of its own (kernels.h). For kernels.cpp only.
#pragma once

#include "device/cpu/kernels/rounding.h"

namespace split::SPLIT_ISA {
namespace {

// Pairs of a step as stored. A step of blocks that expand_step turned into pairs is BF16.
template <DType dtype>
inline __m512bh pairs_at(const std::byte* numbers, size_t vec, size_t p) {
  if constexpr (dtype == DType::kBF16) {
    const __m512i pairs = _mm512_loadu_si512(numbers + (vec * kPairs + p) * 64);
    return __builtin_bit_cast(__m512bh, pairs);
  } else if constexpr (dtype == DType::kQ8_0) {
    return __builtin_bit_cast(__m512bh, bf16_of_bytes(numbers + (vec * kPairs + p) * 32));
  } else {
    const __m512i words = _mm512_loadu_si512(numbers + (vec * kBlock / 8 + p / 4) * 64);
    return __builtin_bit_cast(__m512bh, bf16_of_nibbles(words, static_cast<unsigned>(p % 4 * 4)));
  }
}

// sums [Rows, 16 Vecs] += x [Rows, 2 Pairs] times one step of strips; strides are bytes. Of each
// pair the odd k first, then the even, both fused.
template <DType dtype, size_t Rows, size_t Vecs, size_t Pairs = kPairs>
inline void multiply_pairs(const std::byte* x, size_t x_stride, const std::byte* w, size_t w_stride,
                           __m512 (&sums)[Rows][Vecs]) {
#pragma GCC unroll 16
  for (size_t p = 0; p < Pairs; ++p) {
    __m512bh columns[Vecs];
    for (size_t v = 0; v < Vecs; ++v) {
      columns[v] = pairs_at<dtype>(w + v / kVecsOfStrip * w_stride, v % kVecsOfStrip, p);
    }
    for (size_t r = 0; r < Rows; ++r) {
      int32_t pair = 0;
      __builtin_memcpy(&pair, x + r * x_stride + p * sizeof pair, sizeof pair);
      const auto all = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(pair));
      for (size_t v = 0; v < Vecs; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], columns[v], all);
      }
    }
  }
}

// Rows in round_to_tiles's layout, from some step on.
struct TiledRows {
  const std::byte* x;
  size_t stride;  // bytes from sixteen rows to the next

  const std::byte* at(size_t row) const {
    return x + row / kTileHeight * stride + row % kTileHeight * kTileRow;
  }
};

// Some steps of some strips in BF16, and of the rows.
struct PairPart {
  TiledRows x;
  const std::byte* w;
  size_t w_stride;  // bytes from a strip to the next
  size_t steps;
  bool first;  // y is not set yet
  float* y;
  size_t y_stride;  // floats
};

// y [Rows, Strips * kStripColumns] += x w for rows from `row` on, all in one tile. A result is one
// chain over all steps.
template <size_t Rows, size_t Strips>
inline void chain_pairs(const PairPart& part, size_t row) {
  constexpr size_t kVecs = Strips * kVecsOfStrip, kBytes = step_bytes(DType::kBF16);
  const std::byte* x = part.x.at(row);
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
    // Prefetches the next part. To L2: L1 has too few requests to it.
    for (size_t line = 0; row == 0 && line < Strips * kBytes; line += 64) {
      const std::byte* const next = w + part.steps * kBytes + line / kBytes * part.w_stride;
      __builtin_prefetch(next + line % kBytes, 0, 2);
    }
    multiply_pairs<DType::kBF16>(x, kTileRow, w, part.w_stride, sums);
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      _mm512_storeu_ps(y + r * part.y_stride + 16 * v, sums[r][v]);
    }
  }
}

// Takes rows from `row` on, as many at a time as the registers have sums for.
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
    const PairPart part{{task.x + done * kTileBytes, steps * kTileBytes},
                        w + done * kBytes,
                        steps * kBytes,
                        count,
                        done == 0,
                        task.y + first,
                        task.y_stride};
    rows_by_pairs<Rows, Strips>(part, task.rows, 0);
  }
}

// Some steps of a strip of blocks, and of the rows.
struct BlockPart {
  TiledRows x;
  const std::byte* w;  // numbers
  size_t w_stride;     // bytes from a step's to the next's
  const std::byte* scales;
  size_t scales_stride;
  size_t steps;
  bool first;  // y is not set yet
  float* y;
  size_t y_stride;  // floats
};

// y [Rows, kStripColumns] += x w for rows from `row` on, all in one tile, or for fewer.
template <DType dtype, size_t Rows>
inline void blocks_by_pairs(const BlockPart& part, size_t rows, size_t row) {
  if constexpr (Rows > 1) {
    if (rows - row < Rows) return blocks_by_pairs<dtype, Rows - 1>(part, rows, row);
  }
  const std::byte* x = part.x.at(row);
  for (size_t s = 0; s < part.steps; ++s, x += kTileBytes) {
    const std::byte* const w = part.w + s * part.w_stride;
    for (size_t line = 0; dtype != DType::kBF16 && line < step_bytes(dtype); line += 64) {
      __builtin_prefetch(w + kAhead - step_scales(dtype) + line, 0, 2);
    }
    __m512 sums[Rows][kVecsOfStrip];
    for (auto& of_row : sums) {
      for (__m512& sum : of_row) sum = _mm512_setzero_ps();
    }
    multiply_pairs<dtype>(x, kTileRow, w, 0, sums);
    for (size_t v = 0; v < kVecsOfStrip; ++v) {
      const Vec factors = load_f16(part.scales + s * part.scales_stride + 32 * v);
      for (size_t r = 0; r < Rows; ++r) {
        float* const to = part.y + (row + r) * part.y_stride + 16 * v;
        store(to, fma({sums[r][v]}, factors, part.first && s == 0 ? zero() : load(to)));
      }
    }
  }
}

// One strip of blocks. For more rows than are multiplied together, numbers are expanded once.
template <DType dtype>
void strip_of_blocks(const StepTask& task, const std::byte* w, float* y) {
  constexpr size_t kRows = 8, kBytes = step_bytes(dtype), kPairBytes = step_bytes(DType::kBF16);
  constexpr size_t kAtOnce = 4;  // 8 KiB, a part of L1
  static_assert(kAtOnce * kPairBytes <= kStepScratch);
  const size_t steps = steps_of(task.inner);
  const TiledRows x{task.x, steps * kTileBytes};
  if (task.rows <= kRows) {
    const std::byte* const numbers = w + step_scales(dtype);
    return blocks_by_pairs<dtype, kRows>(
        {x, numbers, kBytes, w, kBytes, steps, true, y, task.y_stride}, task.rows, 0);
  }
  for (size_t done = 0; done < steps; done += kAtOnce, w += kAtOnce * kBytes) {
    const size_t count = steps - done < kAtOnce ? steps - done : kAtOnce;
    for (size_t s = 0; s < count; ++s) {
      expand_step<dtype, 2>(w + s * kBytes + step_scales(dtype), task.scratch + s * kPairBytes);
    }
    const BlockPart part{{x.x + done * kTileBytes, x.stride},
                         task.scratch,
                         kPairBytes,
                         w,
                         kBytes,
                         count,
                         done == 0,
                         y,
                         task.y_stride};
    for (size_t row = 0; row < task.rows; row += kRows) {
      blocks_by_pairs<DType::kBF16, kRows>(part, task.rows, row);
    }
  }
}

template <DType dtype>
void matmul_blocks_by_pairs(const StepTask& task) {
  const FlushDenormals flush;
  for (size_t c = 0; c < task.columns; c += kStripColumns) {
    const size_t strip = (task.first + c) / kStripColumns;
    strip_of_blocks<dtype>(task, task.w + strip * steps_of(task.inner) * step_bytes(dtype),
                           task.y + c);
  }
}

// x in round_to_tiles's layout.
void matmul_pairs(const StepTask& task) {
  if (task.dtype == DType::kQ8_0) return matmul_blocks_by_pairs<DType::kQ8_0>(task);
  if (task.dtype == DType::kQ4_0) return matmul_blocks_by_pairs<DType::kQ4_0>(task);
  size_t c = 0;
  // Few rows have too few chains in one strip.
  for (; task.rows < 4 && c + 2 * kStripColumns < task.columns; c += 3 * kStripColumns) {
    strips_by_pairs<2, 3>(task, c);
  }
  for (; c < task.columns; c += kStripColumns) strips_by_pairs<8, 1>(task, c);
}

}  // namespace
}  // namespace split::SPLIT_ISA
