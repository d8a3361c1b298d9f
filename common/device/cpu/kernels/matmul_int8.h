// Products of rows rounded to blocks of int8 by matrices in blocks: whole numbers, exact in every
// instruction set, then one chain of fused multiply-adds. For kernels.cpp and int8.cpp
// only, which are compiled once for each of these.
#pragma once

#include "device/cpu/kernels/dot_int8.h"
#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/kernels.h"

namespace split::SPLIT_ISA {
namespace {

// The largest magnitude of a block; a NaN is the largest.
inline float largest_magnitude(const float* from) {
  int largest = 0;  // whose bits have the order of whole numbers
  for (size_t i = 0; i < kBlock; ++i) {
    const int bits = glsl::floatBitsToInt(from[i]) & 0x7fffffff;
    largest = largest < bits ? bits : largest;
  }
  return glsl::intBitsToFloat(largest);
}

// A block as numbers times `scale`, to nearest even.
inline void round_numbers(const float* from, float scale, int8_t* numbers) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (size_t i = 0; i < kBlock; ++i) {
    const float q = glsl::min(127.0f, glsl::max(-127.0f, from[i] * inverse));  // a NaN: -127
    constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
    numbers[i] = static_cast<int8_t>(static_cast<int>(q + kWhole - kWhole));
  }
}

// One block of Q8_0: numbers of the rounded scale, to nearest even.
inline void quantise_block(const float* from, std::byte* to) {
  const float exact = largest_magnitude(from) / 127.0f;
#if defined(__F16C__)
  const uint16_t scale = _cvtss_sh(exact, _MM_FROUND_TO_NEAREST_INT);
  const float rounded = _cvtsh_ss(scale);
#else
  const uint16_t scale = f32_to_f16(exact);
  const float rounded = f16_to_f32(scale);
#endif
  int8_t numbers[kBlock];
  round_numbers(from, rounded, numbers);
  __builtin_memcpy(to, &scale, sizeof scale);
  __builtin_memcpy(to + sizeof scale, numbers, sizeof numbers);
}

// x [rows][steps]. What is not finite makes the scale so, and with it the products.
void round_to_int8(const RoundTask& task) {
  auto* to =
      reinterpret_cast<RowStep*>(task.x) + task.row * steps_of(task.inner) + task.first / kBlock;
  for (size_t k = 0; k < task.count; k += kBlock, ++to) {
    float rest[kBlock] = {};
    const float* block = task.from + k;
    if (task.count - k < kBlock) {
      __builtin_memcpy(rest, block, (task.count - k) * sizeof(float));
      block = rest;
    }
    to->scale = largest_magnitude(block) / 127.0f;
    round_numbers(block, to->scale, to->numbers);
    int32_t sum = 0;
    for (const int8_t number : to->numbers) sum += number;
    to->sum = sum;
  }
}

// The fours of one step from number k on; of Q4_0 twice as many at a time.
template <DType dtype, size_t Rows, size_t Vecs>
inline void add_numbers(const RowStep* x, size_t x_stride, const std::byte* numbers, size_t vec,
                        Ints (&sums)[Rows][Vecs]) {
  constexpr bool kBytes = dtype == DType::kQ8_0;
  constexpr size_t kEach = kBytes ? 4 : 8, kGroups = kBlock / kEach;
#pragma GCC unroll 8
  for (size_t g = 0; g < kGroups; ++g) {
    Fours low[Vecs], high[Vecs];
    for (size_t v = 0; v < Vecs; ++v) {
      const std::byte* const at = numbers + ((vec + v) * kGroups + g) * 64;
      if constexpr (kBytes) {
        low[v] = fours_of_q8(at);
      } else {
        fours_of_q4(at, low[v], high[v]);
      }
    }
    for (size_t r = 0; r < Rows; ++r) {
      int32_t words[2];
      __builtin_memcpy(words, x[r * x_stride].numbers + g * kEach, kEach);
      for (size_t v = 0; v < Vecs; ++v) {
        sums[r][v] = add_fours<dtype>(sums[r][v], low[v], words[0]);
        if constexpr (!kBytes) sums[r][v] = add_fours<dtype>(sums[r][v], high[v], words[1]);
      }
    }
  }
}

// y [Rows, 16 Vecs] = or += some steps.
template <DType dtype, size_t Rows, size_t Vecs>
inline void int8_tile(const RowStep* x, size_t x_stride, const std::byte* w, size_t vec,
                      size_t steps, bool prefetch, bool accumulate, float* y, size_t y_stride) {
  constexpr size_t kBytes = step_bytes(dtype);
  Vec totals[Rows][Vecs];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vecs; ++v) {
      totals[r][v] = accumulate ? load(y + r * y_stride + 16 * (vec + v)) : zero();
    }
  }
  for (size_t s = 0; s < steps; ++s, ++x, w += kBytes) {
    if (prefetch) prefetch_ahead(w, kBytes);
    Ints sums[Rows][Vecs];
    for (size_t r = 0; r < Rows; ++r) {
      const Ints start = all(-offset<dtype> * x[r * x_stride].sum);
      for (size_t v = 0; v < Vecs; ++v) sums[r][v] = start;
    }
    add_numbers<dtype>(x, x_stride, w + step_scales(dtype), vec, sums);
    for (size_t v = 0; v < Vecs; ++v) {
      const Vec scales = load_f16(w + 32 * (vec + v));
      for (size_t r = 0; r < Rows; ++r) {
        const Vec factor = mul(scales, broadcast(x[r * x_stride].scale));
        totals[r][v] = fma(to_floats(sums[r][v]), factor, totals[r][v]);
      }
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t v = 0; v < Vecs; ++v) store(y + r * y_stride + 16 * (vec + v), totals[r][v]);
  }
}

// Rows and Vecs whose sums the registers hold beside the weights.
#if defined(__AVX512F__)
constexpr size_t kInt8Rows = 6, kInt8Vecs = 2;  // of 32 registers
#else
constexpr size_t kInt8Rows = 4, kInt8Vecs = 1;
#endif
constexpr size_t kInt8Steps = 8;  // of many rows: 8 KiB, a part of L1

// All rows from `row` on, in tiles of Rows and then of fewer, by some steps.
template <DType dtype, size_t Rows = kInt8Rows>
void int8_rows(const StepTask& task, size_t row, const std::byte* w, size_t done, size_t count,
               float* y) {
  const size_t steps = steps_of(task.inner);
  const auto* const x = reinterpret_cast<const RowStep*>(task.x) + done;
  for (; row + Rows <= task.rows; row += Rows) {
    for (size_t vec = 0; vec < kStripColumns / 16; vec += kInt8Vecs) {
      int8_tile<dtype, Rows, kInt8Vecs>(x + row * steps, steps, w, vec, count, row == 0 && vec == 0,
                                        done > 0, y + row * task.y_stride, task.y_stride);
    }
  }
  if constexpr (Rows > 1) {
    if (row < task.rows) int8_rows<dtype, Rows - 1>(task, row, w, done, count, y);
  }
}

template <DType dtype>
void matmul_int8_typed(const StepTask& task) {
  const size_t steps = steps_of(task.inner);
  const size_t each =
      task.rows <= kInt8Rows && kInt8Vecs == kStripColumns / 16 ? steps : kInt8Steps;
  for (size_t c = 0; c < task.columns; c += kStripColumns) {
    const std::byte* const w =
        task.w + (task.first + c) / kStripColumns * steps * step_bytes(dtype);
    for (size_t done = 0; done < steps; done += each) {
      int8_rows<dtype>(task, 0, w + done * step_bytes(dtype), done,
                       steps - done < each ? steps - done : each, task.y + c);
    }
  }
}

void matmul_int8(const StepTask& task) {
  task.dtype == DType::kQ8_0 ? matmul_int8_typed<DType::kQ8_0>(task)
                             : matmul_int8_typed<DType::kQ4_0>(task);
}

constexpr CpuKernels::Steps int8_steps() {
  return {round_to_int8, matmul_int8, sizeof(RowStep), 0};
}

}  // namespace
}  // namespace split::SPLIT_ISA
