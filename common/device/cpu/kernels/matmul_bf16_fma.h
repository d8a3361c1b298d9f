// Products of rows rounded to bf16 by matrices in BF16 or in blocks: a tile of AMX's result, here
// by fused multiply-adds. For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/vec.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kVecsOfStrip = kStripColumns / 16;
constexpr size_t kPairs = kBlock / 2;
constexpr size_t kAhead = 6144;  // bytes, farther than the hardware's prefetcher reaches

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

// The k = 2 p and 2 p + 1 of sixteen columns of a step (kernels.h has the order).
struct Pair {
  Vec even, odd;
};
#if defined(__AVX512F__)
inline Pair pair_of_words(__m512i words) {
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))},
          {_mm512_castsi512_ps(
              _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000))))}};
}
inline Pair pair_of_bf16(const std::byte* at) { return pair_of_words(_mm512_loadu_si512(at)); }
// Pairs of bf16, by a table: the lookup takes the low five bits of each half.
inline __m512i bf16_of_nibbles(__m512i words, unsigned shift) {
  alignas(64) static constexpr uint16_t kNumbers[32] = {
      0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0,      0x3f80, 0x4000,
      0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
      0xc000, 0xbf80, 0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
  return _mm512_permutexvar_epi16(_mm512_srli_epi32(words, shift), _mm512_load_si512(kNumbers));
}
inline Pair pair_of_nibbles(const std::byte* at, unsigned shift) {
  return pair_of_words(bf16_of_nibbles(_mm512_loadu_si512(at), shift));
}
#elif defined(__AVX2__)
struct Words {
  __m256i a, b;
};
inline Words load_words(const std::byte* at) {
  const auto* half = reinterpret_cast<const __m256i*>(at);
  return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
}
inline Pair pair_of_bf16(const std::byte* at) {
  const Words words = load_words(at);
  const auto even = [](__m256i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); };
  const auto odd = [](__m256i x) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  };
  return {{even(words.a), even(words.b)}, {odd(words.a), odd(words.b)}};
}
// Puts a nibble into the bits of a number's fraction, at a power of two for which its last bit is
// one, and subtracts that.
inline Pair pair_of_nibbles(const std::byte* at, unsigned shift) {
  const Words words = load_words(at);
  const int power = (127 + 23 - static_cast<int>(shift)) << 23;
  const __m256i mask = _mm256_set1_epi32(15 << shift), one = _mm256_set1_epi32(power);
  const __m256 eight = _mm256_castsi256_ps(_mm256_set1_epi32(power | 8 << shift));
  const auto number = [&](__m256i x) {
    const __m256i bits = _mm256_or_si256(_mm256_and_si256(x, mask), one);
    return _mm256_sub_ps(_mm256_castsi256_ps(bits), eight);
  };
  return {{number(words.a), number(words.b)},
          {number(_mm256_srli_epi32(words.a, 16)), number(_mm256_srli_epi32(words.b, 16))}};
}
#elif defined(SPLIT_WASM_KERNELS)
inline Pair pair_of_bf16(const std::byte* at) { return {low_bf16(at), high_bf16(at)}; }
inline Pair pair_of_nibbles(const std::byte* at, unsigned shift) {
  return {nibbles(at, shift), nibbles(at, shift + 16)};
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

// One step of a strip, as stored; or as floats, sixteen of the even k and sixteen of the odd of
// each pair.
template <DType dtype, size_t Pairs>
inline Pair pair_at(const std::byte* numbers, size_t vec, size_t p) {
  if constexpr (dtype == DType::kBF16) {
    return pair_of_bf16(numbers + (vec * Pairs + p) * 64);
  } else if constexpr (dtype == DType::kQ8_0) {
    const std::byte* const at = numbers + (vec * kPairs + p) * 32;
    return {from_numbers(load_numbers(at)), from_numbers(load_numbers(at + 16))};
  } else if constexpr (dtype == DType::kF32) {
    const auto* const floats = reinterpret_cast<const float*>(numbers) + (vec * Pairs + p) * 32;
    Pair pair{load(floats), load(floats + 16)};
    hold(pair.even), hold(pair.odd);
    return pair;
  } else {
    return pair_of_nibbles(numbers + (vec * kBlock / 8 + p / 4) * 64,
                           static_cast<unsigned>(p % 4 * 4));
  }
}

// y [Rows, 16 Vecs] += one step, times any scales. (With a condition at run time, GCC would delay
// work for one case until it is known, and keep all weights on the stack.)
template <DType dtype, bool scaled, size_t Rows, size_t Vecs, size_t Pairs = kPairs>
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
    const Vec factor = scaled ? load_f16(scales + 32 * (vec + v)) : zero();
    for (size_t r = 0; r < Rows; ++r) {
      float* const to = y + r * y_stride + 16 * (vec + v);
      const Vec sum = add(even[r][v], odd[r][v]);
      store(to, scaled ? fma(sum, factor, load(to)) : add(sum, load(to)));
    }
  }
}

// Rows and Vecs whose two chains the registers hold beside the weights, and the rows up to which
// each tile makes floats of these anew: for more, some steps are widened once.
#if defined(__AVX512F__)
constexpr size_t kStepRows = 4, kStepVecs = 2;  // 32 registers
constexpr size_t rows_unwidened(DType dtype) { return dtype == DType::kBF16 ? SIZE_MAX : 8; }
#elif defined(__AVX2__)
constexpr size_t kStepRows = 2, kStepVecs = 1;  // 8: a Vec is two of 16
constexpr size_t rows_unwidened(DType dtype) { return dtype == DType::kBF16 ? SIZE_MAX : 4; }
#elif defined(SPLIT_WASM_KERNELS)
constexpr size_t kStepRows = 1, kStepVecs = 1;  // 4: a Vec is four of 16
constexpr size_t rows_unwidened(DType) { return 2; }
#else
constexpr size_t kStepRows = 2, kStepVecs = 1;
constexpr size_t rows_unwidened(DType) { return 2; }
#endif
static_assert(kVecsOfStrip % kStepVecs == 0);

// kStepRows rows, or the rest of them, by some steps of a strip.
struct StepPart {
  const float* x;  // [steps][kStepRows][kBlock]
  const std::byte* w;
  size_t w_stride;  // bytes from a step's numbers to the next's
  const std::byte* scales;
  size_t steps;
  // Prefetches the next part: each of `groups` of rows asks for a part of its lines.
  const std::byte* next;
  size_t group, groups;
  float* y;
  size_t y_stride;  // floats
};

// `dtype` is the matrix's type, `read` the type of the numbers read.
template <DType dtype, DType read, size_t Rows = kStepRows>
void add_steps(const StepPart& part, size_t rows) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return add_steps<dtype, read, Rows - 1>(part, rows);
  }
  constexpr size_t kBytes = step_bytes(dtype);
  for (size_t s = 0; s < part.steps; ++s) {
    // To L2: L1 has too few requests to memory.
    for (size_t line = part.group * 64; line < kBytes; line += part.groups * 64) {
      __builtin_prefetch(part.next + s * kBytes + line, 0, 2);
    }
    for (size_t vec = 0; vec < kVecsOfStrip; vec += kStepVecs) {
      add_step<read, (step_scales(dtype) > 0), Rows, kStepVecs>(
          part.x + s * kStepRows * kBlock, kBlock, part.w + s * part.w_stride, vec,
          part.scales + s * kBytes, part.y, part.y_stride);
    }
  }
}

// Widens a step into pair_at<DType::kF32>()'s order.
template <DType dtype>
void widen_step(const std::byte* numbers, float* to) {
  for (size_t vec = 0; vec < kVecsOfStrip; ++vec) {
    for (size_t p = 0; p < kPairs; ++p, to += 32) {
      const Pair pair = pair_at<dtype, kPairs>(numbers, vec, p);
      store(to, pair.even), store(to + 16, pair.odd);
    }
  }
}

// One strip, some steps at a time by all rows.
template <DType dtype, bool wide>
void step_strip(const StepTask& task, const std::byte* w, float* y) {
  constexpr size_t kBytes = step_bytes(dtype), kScales = step_scales(dtype);
  constexpr size_t kWideBytes = kBlock * kStripColumns * sizeof(float);
  constexpr size_t kAtOnce = wide ? 4 : 12;  // 16 KiB of floats, a part of L1; at most 24 KiB
  static_assert(!wide || kAtOnce * kWideBytes <= kStepScratch);
  const size_t steps = steps_of(task.inner), groups = (task.rows + kStepRows - 1) / kStepRows;
  for (size_t r = 0; r < task.rows; ++r) {
    for (size_t v = 0; v < kVecsOfStrip; ++v) store(y + r * task.y_stride + 16 * v, zero());
  }
  for (size_t done = 0; done < steps; done += kAtOnce, w += kAtOnce * kBytes) {
    const size_t count = steps - done < kAtOnce ? steps - done : kAtOnce;
    for (size_t s = 0; wide && s < count; ++s) {
      widen_step<dtype>(w + s * kBytes + kScales,
                        reinterpret_cast<float*>(task.scratch + s * kWideBytes));
    }
    for (size_t g = 0; g < groups; ++g) {
      const StepPart part{
          reinterpret_cast<const float*>(task.x) + (g * steps + done) * kStepRows * kBlock,
          wide ? task.scratch : w + kScales,
          wide ? kWideBytes : kBytes,
          w,
          count,
          w + kAtOnce * kBytes,
          g,
          groups,
          y + g * kStepRows * task.y_stride,
          task.y_stride};
      add_steps<dtype, wide ? DType::kF32 : dtype>(part, task.rows - g * kStepRows);
    }
  }
}

template <DType dtype>
void matmul_steps_typed(const StepTask& task) {
  for (size_t c = 0; c < task.columns; c += kStripColumns) {
    const std::byte* const w =
        task.w + (task.first + c) / kStripColumns * steps_of(task.inner) * step_bytes(dtype);
    task.rows > rows_unwidened(dtype) ? step_strip<dtype, true>(task, w, task.y + c)
                                      : step_strip<dtype, false>(task, w, task.y + c);
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

}  // namespace
}  // namespace split::SPLIT_ISA
