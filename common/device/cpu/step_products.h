// Products of rows that were rounded to bf16 by matrices in BF16 or in blocks: what a tile of AMX
// computes, here by fused multiply-adds. For kernels.cpp only, which is compiled once for each
// instruction set.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kVecsOfStrip = kStripColumns / 16;
constexpr size_t kPairs = kBlock / 2;

// Denormals are zeros here, as in a tile.
class FlushDenormals {
#if defined(__SSE__)
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }  // FTZ, DAZ
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned saved_;
#endif
};

inline Vec add(Vec a, Vec b) { return fma(a, broadcast(1.0f), b); }

// The k = 2 p and 2 p + 1 of sixteen columns of a step (kernels.h has the order).
struct Pair {
  Vec even, odd;
};
#if defined(__AVX512F__)
inline Pair pair_of_bf16(const std::byte* at) {
  const __m512i words = _mm512_loadu_si512(at);
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))},
          {_mm512_castsi512_ps(
              _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000))))}};
}
// The table lookup takes the low four bits of each index.
inline Pair pair_of_nibbles(const std::byte* at, unsigned shift) {
  const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i words = _mm512_loadu_si512(at);
  return {{_mm512_permutexvar_ps(_mm512_srli_epi32(words, shift), numbers)},
          {_mm512_permutexvar_ps(_mm512_srli_epi32(words, 16 + shift), numbers)}};
}
#else
template <typename Of>
inline Vec each_word(const std::byte* at, const Of& of) {
  uint32_t words[16];
  __builtin_memcpy(words, at, sizeof words);
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = of(words[i]);
  return load(lanes);
}
inline Pair pair_of_bf16(const std::byte* at) {
  return {each_word(at, [](uint32_t word) { return __builtin_bit_cast(float, word << 16); }),
          each_word(at, [](uint32_t word) { return __builtin_bit_cast(float, word >> 16 << 16); })};
}
inline Pair pair_of_nibbles(const std::byte* at, unsigned shift) {
  const auto number = [](uint32_t word) { return static_cast<float>(int(word & 15) - 8); };
  return {each_word(at, [&](uint32_t word) { return number(word >> shift); }),
          each_word(at, [&](uint32_t word) { return number(word >> (16 + shift)); })};
}
#endif

// One step of a strip, as stored; or as floats [kBlock][kStripColumns], widened once for many rows.
template <DType dtype, size_t Pairs>
inline Pair pair_at(const std::byte* numbers, size_t vec, size_t p) {
  if constexpr (dtype == DType::kBF16) {
    return pair_of_bf16(numbers + (vec * Pairs + p) * 64);
  } else if constexpr (dtype == DType::kQ8_0) {
    const std::byte* const at = numbers + (vec * kPairs + p) * 32;
    return {from_numbers(load_numbers(at)), from_numbers(load_numbers(at + 16))};
  } else if constexpr (dtype == DType::kQ4_0) {
    return pair_of_nibbles(numbers + (vec * kBlock / 8 + p / 4) * 64,
                           static_cast<unsigned>(p % 4 * 4));
  } else {
    const auto* const floats =
        reinterpret_cast<const float*>(numbers) + 2 * p * kStripColumns + 16 * vec;
    return {load(floats), load(floats + kStripColumns)};
  }
}

// y [Rows, 16 Vecs] += one step, times the scales where there are.
template <DType dtype, size_t Rows, size_t Vecs, size_t Pairs = kPairs>
inline void add_step(const float* x, size_t x_stride, const std::byte* numbers, size_t vec,
                     const std::byte* scales, float* y, size_t y_stride) {
  Vec even[Rows][Vecs], odd[Rows][Vecs];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vecs; ++v) even[r][v] = odd[r][v] = zero();
  }
#pragma GCC unroll 16
  for (size_t p = 0; p < Pairs; ++p) {
    Pair pairs[Vecs];
    for (size_t v = 0; v < Vecs; ++v) pairs[v] = pair_at<dtype, Pairs>(numbers, vec + v, p);
    for (size_t r = 0; r < Rows; ++r) {
      const Vec first = broadcast(x[r * x_stride + 2 * p]);
      for (size_t v = 0; v < Vecs; ++v) even[r][v] = fma(first, pairs[v].even, even[r][v]);
      const Vec second = broadcast(x[r * x_stride + 2 * p + 1]);
      for (size_t v = 0; v < Vecs; ++v) odd[r][v] = fma(second, pairs[v].odd, odd[r][v]);
    }
  }
  for (size_t v = 0; v < Vecs; ++v) {
    const Vec factor = scales == nullptr ? broadcast(1.0f) : load_f16(scales + 32 * (vec + v));
    for (size_t r = 0; r < Rows; ++r) {
      float* const to = y + r * y_stride + 16 * (vec + v);
      store(to, fma(add(even[r][v], odd[r][v]), factor, load(to)));
    }
  }
}

// Rows and Vecs whose two chains the registers hold beside the weights.
#if defined(__AVX512F__)
constexpr size_t kStepRows = 6, kStepVecs = 2;  // of 32 registers
#elif defined(__AVX2__)
constexpr size_t kStepRows = 2, kStepVecs = 1;  // of 8: a Vec is two of 16
#else
constexpr size_t kStepRows = 2, kStepVecs = 1;
#endif
static_assert(kVecsOfStrip % kStepVecs == 0);

// All rows from `row` on, in tiles of Rows and then of fewer.
template <DType dtype, size_t Rows = kStepRows>
void add_steps(const StepTask& task, size_t row, const float* x, const std::byte* w,
               size_t w_stride, size_t steps, const std::byte* scales, size_t scales_stride,
               float* y) {
  const size_t x_stride = steps_of(task.inner) * kBlock;
  for (; row + Rows <= task.rows; row += Rows) {
    const std::byte *step = w, *scale = scales;
    for (size_t s = 0; s < steps; ++s, step += w_stride) {
      // The first pass comes from memory: 6 KiB ahead, which the hardware's prefetcher does not
      // reach, to L2, because L1 has too few of its requests.
      if (row == 0) {
        for (size_t line = 0; line < w_stride; line += 64) {
          __builtin_prefetch(step + 6144 + line, 0, 2);
        }
      }
      for (size_t vec = 0; vec < kVecsOfStrip; vec += kStepVecs) {
        add_step<dtype, Rows, kStepVecs>(x + row * x_stride + s * kBlock, x_stride, step, vec,
                                         scale, y + row * task.y_stride, task.y_stride);
      }
      if (scale != nullptr) scale += scales_stride;
    }
  }
  if constexpr (Rows > 1) {
    if (row < task.rows) {
      add_steps<dtype, Rows - 1>(task, row, x, w, w_stride, steps, scales, scales_stride, y);
    }
  }
}

template <DType dtype>
void matmul_steps_typed(const StepTask& task) {
  constexpr size_t kBytes = step_bytes(dtype), kScales = step_scales(dtype);
  const size_t steps = steps_of(task.inner);
  const auto* const x = reinterpret_cast<const float*>(task.x);
  for (size_t c = 0; c < task.columns; c += kStripColumns) {
    const std::byte* w = task.w + (task.first + c) / kStripColumns * steps * kBytes;
    float* const y = task.y + c;
    for (size_t r = 0; r < task.rows; ++r) {
      for (size_t v = 0; v < kVecsOfStrip; ++v) store(y + r * task.y_stride + 16 * v, zero());
    }
    if (task.rows <= kStepRows) {
      add_steps<dtype>(task, 0, x, w + kScales, kBytes, steps, kScales > 0 ? w : nullptr, kBytes,
                       y);
      continue;
    }
    // Widened once for many rows.
    auto* const wide = reinterpret_cast<float*>(task.scratch);
    for (size_t done = 0; done < steps; done += kStepsAtOnce) {
      const size_t count = steps - done < kStepsAtOnce ? steps - done : kStepsAtOnce;
      for (size_t s = 0; s < count; ++s) {
        const std::byte* const step = w + s * kBytes;
        for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(step + 4096 + line);
        float* const to = wide + s * kBlock * kStripColumns;
        for (size_t vec = 0; vec < kVecsOfStrip; ++vec) {
          for (size_t p = 0; p < kPairs; ++p) {
            const Pair pair = pair_at<dtype, kPairs>(step + kScales, vec, p);
            store(to + 2 * p * kStripColumns + 16 * vec, pair.even);
            store(to + (2 * p + 1) * kStripColumns + 16 * vec, pair.odd);
          }
        }
      }
      add_steps<DType::kF32>(task, 0, x + done * kBlock, task.scratch,
                             kBlock * kStripColumns * sizeof(float), count,
                             kScales > 0 ? w : nullptr, kBytes, y);
      w += count * kBytes;
    }
  }
}

void matmul_steps(const StepTask& task) {
  [[maybe_unused]] const FlushDenormals flush;
  switch (task.dtype) {
    case DType::kQ8_0:
      return matmul_steps_typed<DType::kQ8_0>(task);
    case DType::kQ4_0:
      return matmul_steps_typed<DType::kQ4_0>(task);
    default:
      return matmul_steps_typed<DType::kBF16>(task);
  }
}

// To nearest even; a NaN stays one, a denormal becomes a zero: as VCVTNEPS2BF16 has it.
inline uint32_t bf16_bits(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded =
      magnitude < 0x00800000 ? bits & 0x80000000 : bits + 0x7fff + (bits >> 16 & 1);
  return (magnitude > 0x7f800000 ? bits | 0x400000 : rounded) & 0xffff0000;
}

// n of them, the upper halves side by side.
inline void round_halves(const float* from, size_t n, std::byte* to) {
  size_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 32 <= n; i += 32) {
    const __m512bh both =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
    __builtin_memcpy(to + 2 * i, &both, sizeof both);
  }
#endif
  for (; i < n; ++i) {
    const auto half = static_cast<uint16_t>(bf16_bits(from[i]) >> 16);
    __builtin_memcpy(to + 2 * i, &half, sizeof half);
  }
}

// x [rows, whole steps] floats.
void round_to_floats(const RoundTask& task) {
  const size_t padded = steps_of(task.inner) * kBlock, end = task.first + task.count;
  auto* const out = reinterpret_cast<float*>(task.x) + task.row * padded + task.first;
  for (size_t i = 0; i < task.count; ++i) {
    out[i] = __builtin_bit_cast(float, bf16_bits(task.from[i]));
  }
  for (size_t i = task.count; end == task.inner && i < padded - task.first; ++i) out[i] = 0;
}

}  // namespace
}  // namespace split::SPLIT_ISA
