// Products of rows rounded to blocks of int8 by matrices in blocks: whole numbers, exact in every
// instruction set, then a chain of each segment of eight blocks, and a chain of segments. For
// kernels.cpp and rounded.cpp only, which are compiled once for each of these.
#pragma once

#include "device/cpu/kernels/dot_int8.h"
#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/ops.h"

namespace split::SPLIT_ISA {
namespace {

// The bits of the largest magnitude of a block; a NaN is the largest.
inline int largest_magnitude(const float* from) {
  int largest = 0;  // float bits, ordered like whole numbers
  for (size_t i = 0; i < kBlock; ++i) {
    const int bits = glsl::floatBitsToInt(from[i]) & 0x7fffffff;
    largest = largest < bits ? bits : largest;
  }
  return largest;
}

// A block as numbers, to nearest even.
inline void round_numbers(const float* from, float inverse, int8_t* numbers) {
  for (size_t i = 0; i < kBlock; ++i) {
    numbers[i] = static_cast<int8_t>(glsl::SPLIT_ISA::block_number_f(from[i], inverse));
  }
}

// One block of Q8_0: numbers of the rounded scale, to nearest even.
inline void quantise_block(const float* from, std::byte* to) {
  const float exact = glsl::intBitsToFloat(largest_magnitude(from)) / 127.0f;
#if defined(__F16C__)
  const uint16_t scale = _cvtss_sh(exact, _MM_FROUND_TO_NEAREST_INT);
  const float rounded = _cvtsh_ss(scale);
#else
  const uint16_t scale = f32_to_f16(exact);
  const float rounded = f16_to_f32(scale);
#endif
  int8_t numbers[kBlock];
  round_numbers(from, rounded > 0 ? 1.0f / rounded : 0.0f, numbers);
  __builtin_memcpy(to, &scale, sizeof scale);
  __builtin_memcpy(to + sizeof scale, numbers, sizeof numbers);
}

// x [rows][steps]. Values that are not finite spoil the scale, and with it the products.
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
    const int largest = largest_magnitude(block);
    to->scale = glsl::SPLIT_ISA::block_scale_f(largest);
    round_numbers(block, glsl::SPLIT_ISA::block_inverse_f(largest), to->numbers);
    for (size_t i = 0; i < kStepSums; ++i) {
      int32_t sum = 0;
      for (size_t k = 0; k < kBlock / kStepSums; ++k)
        sum += to->numbers[i * kBlock / kStepSums + k];
      to->sums[i] = static_cast<int16_t>(sum);
    }
  }
}

// Sums of a row's step, each times its own scale.
template <DType dtype>
constexpr size_t kParts = dtype == DType::kQ6_K ? kStepSums : 1;

// sums = part `part` of one step.
template <DType dtype, size_t Rows, size_t Vecs>
inline void sum_numbers(const RowStep* x, size_t x_stride, const std::byte* numbers, size_t vec,
                        size_t part, Ints (&sums)[Rows][Vecs]) {
  constexpr size_t kLoad = kNibbles<dtype> ? 2 : 1;     // fours of 64 bytes
  constexpr size_t kBytes = kNibbles<dtype> ? 32 : 64;  // bytes of a four
  constexpr size_t kFours = kBlock / 4, kCount = kFours / kParts<dtype>;
  Ints products[Rows][Vecs];
  numbers += (vec * kFours + part * kCount) * kBytes;
#pragma GCC unroll 8
  for (size_t f = 0; f < kCount; ++f) {
    Fours fours[Vecs];
    for (size_t v = 0; v < Vecs; ++v) {
      fours[v] = fours_at<dtype>(numbers + (v * kFours + f / kLoad * kLoad) * kBytes, f % kLoad);
    }
    for (size_t r = 0; r < Rows; ++r) {
      int32_t word = 0;
      __builtin_memcpy(&word, x[r * x_stride].numbers + 4 * (part * kCount + f), sizeof word);
      for (size_t v = 0; v < Vecs; ++v) {
        if (f % kFoursTogether<dtype> == 0) products[r][v] = {};
        products[r][v] = add_fours<dtype>(products[r][v], fours[v], word);
        if (f == 0) sums[r][v] = {};
        if ((f + 1) % kFoursTogether<dtype> == 0 || f + 1 == kCount) {
          sums[r][v] = add_products(sums[r][v], products[r][v]);
          hold(sums[r][v]);
        } else {
          hold(products[r][v]);
        }
      }
    }
  }
  const int32_t first = part == 0 ? -kOffset<dtype> : 0;
  const int32_t second = part + 1 == kParts<dtype> ? -kOffset<dtype> : 0;
  for (size_t r = 0; r < Rows && kOffset<dtype> != 0; ++r) {
    const Ints less = all_of_pair(x[r * x_stride].sums, first, second);
    for (size_t v = 0; v < Vecs; ++v) sums[r][v] = add(sums[r][v], less);
  }
}

// Factors of sixteen columns' sums in a strip's step, each exact in a float: d; Q4_K's d s; Q6_K's
// d, and s of both parts; and Q4_K's dmin m, which the sum of a row's numbers is multiplied by.
template <DType dtype>
struct Scales {
  Scales(const std::byte* step, size_t vec) : d(load_f16(step + 32 * vec)) {
    const auto bytes = [&](size_t at) {
      return from_numbers(load_numbers(step + kStripColumns * at + 16 * vec));
    };
    if constexpr (dtype == DType::kQ4_K) {
      d = mul(d, bytes(4));
      part[0] = mul(load_f16(step + 2 * kStripColumns + 32 * vec), bytes(5));
    } else if constexpr (dtype == DType::kQ6_K) {
      part[0] = bytes(2), part[1] = bytes(3);
    }
  }
  Vec d, part[2];
};

constexpr size_t kInt8Steps = 8;  // of a segment of K; for many rows 8 KiB, a part of L1

// y [Rows, 16 Vecs] = or += some steps: segments, of which the last one may be shorter.
template <DType dtype, size_t Rows, size_t Vecs>
inline void int8_tile(const RowStep* x, size_t x_stride, const std::byte* w, size_t vec,
                      size_t steps, bool prefetch, bool accumulate, float* y, size_t y_stride) {
  constexpr size_t kBytes = step_bytes(dtype);
  const auto to = [&](size_t r, size_t v) { return y + r * y_stride + 16 * (vec + v); };
  for (size_t r = 0; r < Rows && !accumulate; ++r) {
    for (size_t v = 0; v < Vecs; ++v) store(to(r, v), zero());
  }
  alignas(64) float segment[Rows][Vecs][16] = {};
  for (size_t s = 0; s < steps; ++s, ++x, w += kBytes) {
    if (prefetch) prefetch_ahead(w, kBytes);
    Ints sums[kParts<dtype>][Rows][Vecs];
    for (size_t part = 0; part < kParts<dtype>; ++part) {
      sum_numbers<dtype>(x, x_stride, w + step_scales(dtype), vec, part, sums[part]);
    }
    float numbers[Rows];  // Q4_K: factors of dmin m, subtracted
    for (size_t r = 0; r < Rows && dtype == DType::kQ4_K; ++r) {
      const RowStep& row = x[r * x_stride];
      numbers[r] = -(row.scale * static_cast<float>(row.sums[0] + row.sums[1]));
    }
    const bool ends = s % kInt8Steps + 1 == kInt8Steps || s + 1 == steps;
    for (size_t v = 0; v < Vecs; ++v) {
      const Scales<dtype> scales(w, vec + v);
      for (size_t r = 0; r < Rows; ++r) {
        Vec sum = to_floats(sums[0][r][v]), total = load(segment[r][v]);
        if constexpr (dtype == DType::kQ4_K) {
          total = add(total, mul(scales.part[0], broadcast(numbers[r])));
        } else if constexpr (dtype == DType::kQ6_K) {  // a whole number below 2^24
          sum = fma(sum, scales.part[0], mul(to_floats(sums[1][r][v]), scales.part[1]));
        }
        total = add(total, mul(sum, mul(scales.d, broadcast(x[r * x_stride].scale))));
        if (ends) store(to(r, v), add(load(to(r, v)), total));
        store(segment[r][v], ends ? zero() : total);
      }
    }
  }
}

// Rows whose sums the registers hold beside the weights, and Vecs of so many rows.
#if defined(__AVX512F__)
constexpr size_t kInt8Rows = 6, kInt8Sums = 12;  // 32 registers
#elif defined(SPLIT_WASM_KERNELS)
constexpr size_t kInt8Rows = 2, kInt8Sums = 2;
#else
constexpr size_t kInt8Rows = 4, kInt8Sums = 2;
#endif
constexpr size_t int8_vecs(size_t rows) { return 2 * rows <= kInt8Sums ? 2 : 1; }

// All rows from `row` on, in tiles of Rows and then of fewer, by some steps.
template <DType dtype, size_t Rows = kInt8Rows>
void int8_rows(const StepTask& task, size_t row, const std::byte* w, size_t done, size_t count,
               float* y) {
  constexpr size_t kVecs = int8_vecs(Rows);
  const size_t steps = steps_of(task.inner);
  const auto* const x = reinterpret_cast<const RowStep*>(task.x) + done;
  for (; row + Rows <= task.rows; row += Rows) {
    for (size_t vec = 0; vec < kStripColumns / 16; vec += kVecs) {
      int8_tile<dtype, Rows, kVecs>(x + row * steps, steps, w, vec, count, row == 0 && vec == 0,
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
  const bool once = task.rows <= kInt8Rows && int8_vecs(task.rows) == kStripColumns / 16;
  const size_t each = once ? steps : kInt8Steps;
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
  switch (task.dtype) {
    case DType::kQ8_0:
      return matmul_int8_typed<DType::kQ8_0>(task);
    case DType::kQ4_K:
      return matmul_int8_typed<DType::kQ4_K>(task);
    case DType::kQ6_K:
      return matmul_int8_typed<DType::kQ6_K>(task);
    default:
      return matmul_int8_typed<DType::kQ4_0>(task);
  }
}

// Puts the numbers of a step packed for rows in int8 into the order for rows in bf16.
inline void put_in_order(const std::byte* fours, DType dtype, std::byte* to) {
  using Words = uint32_t __attribute__((vector_size(64)));
  using Bytes = uint8_t __attribute__((vector_size(16)));
  const bool nibbles = dtype == DType::kQ4_0 || dtype == DType::kQ4_K;
  const size_t words = kStripColumns * kBlock / (nibbles ? 8 : 4) / 16;
  for (size_t i = 0; i < words; ++i, fours += sizeof(Words), to += sizeof(Words)) {
    Words four;
    __builtin_memcpy(&four, fours, sizeof four);
    if (nibbles) {
      four = (four & 0xf000000f) | (four >> 12 & 0xf0) | (four << 4 & 0xf00) |
             (four >> 8 & 0xf000) | (four << 8 & 0xf0000) | (four >> 4 & 0xf00000) |
             (four << 12 & 0xf000000);
      __builtin_memcpy(to, &four, sizeof four);
      continue;
    }
    for (size_t k = 0; k < 4; ++k) {
      Bytes row = __builtin_convertvector(four >> (8 * k) & 0xff, Bytes);
      if (dtype == DType::kQ6_K) row -= 32;
      __builtin_memcpy(to + k * sizeof row, &row, sizeof row);
    }
  }
}

constexpr CpuKernels::Steps int8_steps() {
  return {round_to_int8, matmul_int8, sizeof(RowStep), 0};
}

}  // namespace
}  // namespace split::SPLIT_ISA
