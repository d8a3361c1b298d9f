// Rounds rows and strips of blocks to bf16, in the layouts of matmul_bf16_fma.h, matmul_amx.h and
// matmul_bf16_pairs.h. For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/kernels/matmul_bf16_fma.h"
#include "device/cpu/kernels/matmul_int8.h"

namespace split::SPLIT_ISA {
namespace {

// Stores sixteen pairs as bf16, to nearest even. Without an instruction for it, NaNs and denormals
// may not be among them.
inline void store_rounded(const Pair& pair, std::byte* to) {
#if defined(__AVX512BF16__)
  alignas(64) static constexpr uint16_t kSideBySide[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512bh halves = _mm512_cvtne2ps_pbh(pair.odd.v, pair.even.v);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kSideBySide),
                                                   __builtin_bit_cast(__m512i, halves)));
#elif defined(__AVX512F__)
  const auto rounded = [](__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  };
  _mm512_storeu_si512(
      to, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(rounded(pair.even.v), 16),
                                  rounded(pair.odd.v)));
#elif defined(__AVX2__)
  const auto rounded = [](__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  };
  const auto pairs = [&](__m256 even, __m256 odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(rounded(even), 16), rounded(odd), 0xaa);
  };
  auto* const half = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(half, pairs(pair.even.a, pair.odd.a));
  _mm256_storeu_si256(half + 1, pairs(pair.even.b, pair.odd.b));
#else
  float even[16], odd[16];
  store(even, pair.even), store(odd, pair.odd);
  const auto rounded = [](float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    return bits + 0x7fff + (bits >> 16 & 1);
  };
  uint32_t words[16];
  for (int i = 0; i < 16; ++i) words[i] = rounded(even[i]) >> 16 | (rounded(odd[i]) & 0xffff0000);
  __builtin_memcpy(to, words, sizeof words);
#endif
}

template <DType dtype>
void dequantise_typed(const std::byte* strip, size_t steps, std::byte* to) {
  constexpr size_t kBytes = step_bytes(dtype);
  for (size_t s = 0; s < steps; ++s, strip += kBytes) {
    for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(strip + kAhead + line);
    for (size_t vec = 0; vec < kVecsOfStrip; ++vec) {
      const Vec scales = load_f16(strip + 32 * vec);
      for (size_t p = 0; p < kPairs; ++p, to += 64) {
        const Pair numbers = pair_at<dtype, kPairs>(strip + step_scales(dtype), vec, p);
        store_rounded({mul(numbers.even, scales), mul(numbers.odd, scales)}, to);
      }
    }
  }
}
// A number n of Q4_K, which is 8 less here, is n d s - dmin m = (n - 8) d s + (8 d s - dmin m).
inline void dequantise_q4_k(const std::byte* strip, size_t steps, std::byte* to) {
  constexpr DType kType = DType::kQ4_K;
  for (size_t s = 0; s < steps; ++s, strip += step_bytes(kType)) {
    for (size_t vec = 0; vec < kVecsOfStrip; ++vec) {
      const std::byte* const bytes = strip + 4 * kStripColumns + 16 * vec;
      const Vec scale = mul(load_f16(strip + 32 * vec), from_numbers(load_numbers(bytes)));
      const Vec less = mul(load_f16(strip + 2 * kStripColumns + 32 * vec),
                           from_numbers(load_numbers(bytes + kStripColumns)));
      const Vec offset = fma(scale, broadcast(8.0f), mul(less, broadcast(-1.0f)));
      for (size_t p = 0; p < kPairs; ++p, to += 64) {
        const Pair numbers = pair_at<DType::kQ4_0, kPairs>(strip + step_scales(kType), vec, p);
        store_rounded({fma(numbers.even, scale, offset), fma(numbers.odd, scale, offset)}, to);
      }
    }
  }
}
// The first eight pairs of Q6_K have the first scale.
inline void dequantise_q6_k(const std::byte* strip, size_t steps, std::byte* to) {
  constexpr DType kType = DType::kQ6_K;
  for (size_t s = 0; s < steps; ++s, strip += step_bytes(kType)) {
    for (size_t vec = 0; vec < kVecsOfStrip; ++vec) {
      const Vec d = load_f16(strip + 32 * vec);
      const std::byte* const bytes = strip + 2 * kStripColumns + 16 * vec;
      const Vec scales[2] = {mul(d, from_numbers(load_numbers(bytes))),
                             mul(d, from_numbers(load_numbers(bytes + kStripColumns)))};
      for (size_t p = 0; p < kPairs; ++p, to += 64) {
        const Pair numbers = pair_at<DType::kQ8_0, kPairs>(strip + step_scales(kType), vec, p);
        const Vec scale = scales[p / (kPairs / 2)];
        store_rounded({mul(numbers.even, scale), mul(numbers.odd, scale)}, to);
      }
    }
  }
}
void dequantise(const std::byte* strip, DType dtype, Rounding packing, size_t steps,
                std::byte* to) {
  if (packing == Rounding::kInt8) {
    alignas(64) std::byte step[step_bytes(DType::kQ6_K)];
    for (; steps > 0; --steps, strip += step_bytes(dtype), to += step_bytes(DType::kBF16)) {
      __builtin_memcpy(step, strip, step_scales(dtype));
      put_in_order(strip + step_scales(dtype), dtype, step + step_scales(dtype));
      dequantise(step, dtype, Rounding::kBF16, 1, to);
    }
    return;
  }
  switch (dtype) {
    case DType::kQ8_0:
      return dequantise_typed<DType::kQ8_0>(strip, steps, to);
    case DType::kQ4_K:
      return dequantise_q4_k(strip, steps, to);
    case DType::kQ6_K:
      return dequantise_q6_k(strip, steps, to);
    default:
      return dequantise_typed<DType::kQ4_0>(strip, steps, to);
  }
}

// Rounds to nearest even; a NaN stays one, what is below 2^-50 becomes 0 (small_f of the op table).
constexpr uint32_t kSmall = 0x26800000;
inline uint32_t bf16_bits(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded = magnitude < kSmall ? 0 : bits + 0x7fff + (bits >> 16 & 1);
  return (magnitude > 0x7f800000 ? bits | 0x400000 : rounded) & 0xffff0000;
}

#if defined(__AVX512BF16__)
inline Vec small(Vec v) {
  const __m512i magnitude =
      _mm512_and_si512(_mm512_castps_si512(v.v), _mm512_set1_epi32(0x7fffffff));
  const __m512i least = _mm512_set1_epi32(static_cast<int>(kSmall));
  return {_mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(magnitude, least), v.v)};
}
inline void store_halves(const Vec (&from)[2], std::byte* to) {
  const __m512bh both = _mm512_cvtne2ps_pbh(small(from[1]).v, small(from[0]).v);
  __builtin_memcpy(to, &both, sizeof both);
}
#endif
// Rounds n of them, the upper halves side by side.
inline void round_halves(const float* from, size_t n, std::byte* to) {
  size_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 32 <= n; i += 32) {
    store_halves({load(from + i), load(from + i + 16)}, to + 2 * i);
  }
  for (; i + 16 <= n; i += 16) {
    const __m256bh halves = _mm512_cvtneps_pbh(small(load(from + i)).v);
    __builtin_memcpy(to + 2 * i, &halves, sizeof halves);
  }
#endif
  for (; i < n; ++i) {
    const auto half = static_cast<uint16_t>(bf16_bits(from[i]) >> 16);
    __builtin_memcpy(to + 2 * i, &half, sizeof half);
  }
}

inline void round_floats(const float* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) to[i] = __builtin_bit_cast(float, bf16_bits(from[i]));
}

// From 2^48 on a row's number is infinite in a product by blocks: tiles scale it.
constexpr uint32_t kInfiniteInRow = 0x57800000;
inline float in_range(float value) {
  const uint32_t magnitude = __builtin_bit_cast(uint32_t, value) & 0x7fffffff;
  const float infinite = value * 0x1p127f;  // or no number
  return magnitude < kSmall ? 0.0f : magnitude < kInfiniteInRow ? value : infinite;
}

// x: for each kStepRows rows and each step [kStepRows][kBlock] floats.
template <bool blocks>
void round_to_floats(const RoundTask& task) {
  const size_t steps = steps_of(task.inner);
  auto* to =
      reinterpret_cast<float*>(task.x) +
      ((task.row / kStepRows * steps + task.first / kBlock) * kStepRows + task.row % kStepRows) *
          kBlock;
  for (size_t k = 0; k < task.count; k += kBlock, to += kStepRows * kBlock) {
    const size_t count = task.count - k < kBlock ? task.count - k : kBlock;
    if (count < kBlock) __builtin_memset(to, 0, kBlock * sizeof(float));
    for (size_t i = 0; blocks && i < count; ++i) to[i] = in_range(task.from[k + i]);
    round_floats(blocks ? to : task.from + k, count, to);
  }
}

#if defined(__AVX512BF16__)
constexpr size_t kTileHeight = 16;
constexpr size_t kTileRow = kBlock * sizeof(uint16_t);  // bytes
constexpr size_t kTileBytes = kTileHeight * kTileRow;

inline Vec in_range(Vec v) {
  const __m512i magnitude =
      _mm512_and_si512(_mm512_castps_si512(v.v), _mm512_set1_epi32(0x7fffffff));
  const auto from = [&](uint32_t bits) {
    return _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(static_cast<int>(bits)));
  };
  const __m512 most = _mm512_mask_mul_ps(v.v, from(kInfiniteInRow), v.v, _mm512_set1_ps(0x1p127f));
  return {_mm512_maskz_mov_ps(from(kSmall), most)};
}

// x: for each sixteen rows and each step a tile; for tiles of blocks times kRowScale.
constexpr float kRowScale = 0x1p64f;
template <bool scaled>
void round_to_tiles(const RoundTask& task) {
  const size_t steps = steps_of(task.inner);
  std::byte* tile = task.x + (task.row / kTileHeight * steps + task.first / kBlock) * kTileBytes +
                    task.row % kTileHeight * kTileRow;
  for (size_t k = 0; k < task.count; k += kBlock, tile += kTileBytes) {
    const float* from = task.from + k;
    float rest[kBlock];
    if (task.count - k < kBlock) {
      __builtin_memset(rest, 0, sizeof rest);
      __builtin_memcpy(rest, from, (task.count - k) * sizeof(float));
      from = rest;
    }
    Vec halves[2] = {load(from), load(from + 16)};
    for (Vec& half : halves) {
      if (scaled) half = mul(in_range(half), broadcast(kRowScale));
    }
    store_halves(halves, tile);
  }
}

// Sixteen numbers in bytes of an even k and those of the next, as pairs of bf16: exact.
inline __m512i bf16_of_bytes(const std::byte* numbers) {
  const __m512i even = _mm512_castps_si512(from_numbers(load_numbers(numbers)).v);
  const __m512i odd = _mm512_castps_si512(from_numbers(load_numbers(numbers + 16)).v);
  return _mm512_or_si512(odd, _mm512_srli_epi32(even, 16));
}

// Bytes as bf16 times 2^-kScaledDown. Numbers in the upper bytes of words become halves of 2^8
// times them, whose bits moved by the three that a half's fraction is longer are bf16 of an
// exponent that is 112 too small: fewer instructions than by floats.
constexpr int kScaledDown = 112 - 8;
inline __m512i scaled_bf16_of_bytes(const std::byte* numbers) {
#if defined(__AVX512FP16__) && defined(__AVX512VBMI__)
  alignas(64) static constexpr uint8_t kUpper[64] = {
      0, 0,  0, 16, 0, 1,  0, 17, 0, 2,  0, 18, 0, 3,  0, 19, 0, 4,  0, 20, 0, 5,
      0, 21, 0, 6,  0, 22, 0, 7,  0, 23, 0, 8,  0, 24, 0, 9,  0, 25, 0, 10, 0, 26,
      0, 11, 0, 27, 0, 12, 0, 28, 0, 13, 0, 29, 0, 14, 0, 30, 0, 15, 0, 31};
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers));
  const __m512i words = _mm512_maskz_permutexvar_epi8(0xaaaaaaaaaaaaaaaa, _mm512_load_si512(kUpper),
                                                      _mm512_castsi256_si512(bytes));
  const __m512i halves = _mm512_castph_si512(_mm512_cvtepi16_ph(words));
  return _mm512_and_si512(_mm512_srai_epi16(halves, 3),
                          _mm512_set1_epi16(static_cast<int16_t>(0x8fff)));
#else
  const __m512i exact = bf16_of_bytes(numbers);
  return _mm512_mask_sub_epi16(exact, _mm512_test_epi16_mask(exact, exact), exact,
                               _mm512_set1_epi16(kScaledDown << 7));
#endif
}

// A quarter of one step of a strip of blocks as pairs of bf16; all of it, two tiles. Every number
// of a block is exact, `scaled` bytes too. The next numbers are prefetched to L1 or L2 by
// `locality` (3, 2).
template <DType dtype, int locality, bool scaled = false>
__attribute__((always_inline)) inline void expand_quarter(const std::byte* numbers, size_t quarter,
                                                          std::byte* to) {
  if (quarter == 0) __builtin_prefetch(numbers + kAhead - 64, 0, locality);  // the scales
  numbers += quarter * (step_bytes(dtype) - step_scales(dtype)) / 4;
  to += quarter * kTileBytes / 2;
  if constexpr (dtype == DType::kQ8_0) {
    for (size_t i = 0; i < kVecsOfStrip * kPairs / 4; ++i, numbers += 32, to += 64) {
      if (i % 2 == 0) __builtin_prefetch(numbers + kAhead, 0, locality);
      _mm512_store_si512(to, scaled ? scaled_bf16_of_bytes(numbers) : bf16_of_bytes(numbers));
    }
  } else {
    for (size_t g = 0; g < kVecsOfStrip * kBlock / 32; ++g, numbers += 64, to += 256) {
      __builtin_prefetch(numbers + kAhead, 0, locality);
      const __m512i words = _mm512_loadu_si512(numbers);
      for (unsigned i = 0; i < 4; ++i) {
        _mm512_store_si512(to + i * 64, bf16_of_nibbles(words, 4 * i));
      }
    }
  }
}
template <DType dtype, int locality, bool scaled = false>
inline void expand_step(const std::byte* numbers, std::byte* to) {
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    expand_quarter<dtype, locality, scaled>(numbers, quarter, to);
  }
}
#endif

}  // namespace
}  // namespace split::SPLIT_ISA
