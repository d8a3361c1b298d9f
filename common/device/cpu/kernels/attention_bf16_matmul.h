// The two products of attention over the pages of a split, whose keys and values lie in their order
// (kernels.h), by fused multiply-adds or by pairs. For kernels.cpp only, which is compiled once for
// each instruction set.
#pragma once

#include <type_traits>

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/kv_layout.h"
#include "device/cpu/kernels/matmul_bf16_fma.h"
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
#include "device/cpu/kernels/matmul_bf16_pairs.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// The memory that a split's two products read: the first bytes of some heads, which lie side by
// side.
struct SplitPages {
  const std::byte* keys[kPagesOfSplit];
  const std::byte* values[kPagesOfSplit];
  size_t from, to;    // the split's keys that some row sees
  size_t begin, end;  // the pages of these keys
  size_t heads;
  size_t head_size;
  size_t head_bytes;
  std::byte* scratch;  // room for two pages of a head in BF16

  // The tokens of a page that some row sees are [skipped, tokens).
  size_t skipped(size_t page) const {
    return from > page * kPageTokens ? from - page * kPageTokens : 0;
  }
  size_t tokens(size_t page) const { return to - page * kPageTokens; }
  bool whole(size_t page) const { return skipped(page) == 0 && tokens(page) >= kPageTokens; }
};

// A step of values of a page in BF16, with zeros for all tokens but [from, to).
inline const std::byte* some_values(const std::byte* values, size_t from, size_t to,
                                    std::byte* out) {
  for (size_t row = 0; row < 2 * kPagePairs; ++row) {
    uint32_t words[16];
    __builtin_memcpy(words, values + row * 64, sizeof words);
    const size_t token = row % kPagePairs * 2;
    const auto seen = [&](size_t at) { return at >= from && at < to; };
    const uint32_t mask = (seen(token) ? 0xffff : 0) | (seen(token + 1) ? 0xffff0000 : 0);
    for (uint32_t& word : words) word &= mask;
    __builtin_memcpy(out + row * 64, words, sizeof words);
  }
  return out;
}

// A page's weights of a row times the values' scales of a step; zeros for unseen tokens, whatever
// lies there.
#if defined(__AVX512F__)
inline Vec scaled(Vec weights, Vec scales) {
  const __mmask16 seen = _mm512_cmp_ps_mask(weights.v, zero().v, _CMP_NEQ_UQ);
  return {_mm512_maskz_mul_ps(seen, weights.v, scales.v)};
}
#else
inline Vec scaled(Vec weights, Vec scales) {
  float w[kPageTokens], factors[kPageTokens];
  store(w, weights), store(factors, scales);
  for (size_t i = 0; i < kPageTokens; ++i) w[i] = w[i] == 0 ? 0 : w[i] * factors[i];
  return load(w);
}
#endif

// The type that queries and weights are rounded to, how many rows are multiplied together, and how:
// y [Rows, 16] += x [Rows, 2 Pairs] times numbers [2 Pairs, 16], and times any scales.
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
using Rounded = uint16_t;
constexpr size_t kPageRows = 16;
inline void round_numbers(const float* from, size_t n, Rounded* to) {
  round_halves(from, n, reinterpret_cast<std::byte*>(to));
}
template <DType dtype, bool scaled, size_t Pairs, size_t Rows>
inline void add_page_step(const Rounded* x, size_t x_stride, const std::byte* numbers,
                          const std::byte* scales, float* y, size_t y_stride) {
  __m512 sums[Rows][1];
  for (auto& sum : sums) sum[0] = _mm512_setzero_ps();
  multiply_pairs<dtype, Rows, 1, Pairs>(reinterpret_cast<const std::byte*>(x), x_stride * sizeof *x,
                                        numbers, 0, sums);
  const Vec factors = scaled ? load_f16(scales) : zero();
  for (size_t r = 0; r < Rows; ++r, y += y_stride) {
    store(y, scaled ? fma({sums[r][0]}, factors, load(y)) : add({sums[r][0]}, load(y)));
  }
}
#else
using Rounded = float;
#if defined(__AVX512F__)
constexpr size_t kPageRows = 8;  // two chains each, in 32 registers
#else
constexpr size_t kPageRows = 2;
#endif
inline void round_numbers(const float* from, size_t n, Rounded* to) { round_floats(from, n, to); }
template <DType dtype, bool scaled, size_t Pairs, size_t Rows>
inline void add_page_step(const Rounded* x, size_t x_stride, const std::byte* numbers,
                          const std::byte* scales, float* y, size_t y_stride) {
  add_step<dtype, scaled, Rows, 1, Pairs>(x, x_stride, numbers, 0, scales, y, y_stride);
}
#endif

// Adds the pairs of all rows, some rows at a time.
template <DType dtype, bool scaled, size_t Pairs, size_t Rows = kPageRows>
void add_pairs(const Rounded* x, size_t x_stride, const std::byte* numbers, const std::byte* scales,
               size_t rows, float* y, size_t y_stride) {
  for (; rows >= Rows; rows -= Rows, x += Rows * x_stride, y += Rows * y_stride) {
    add_page_step<dtype, scaled, Pairs, Rows>(x, x_stride, numbers, scales, y, y_stride);
  }
  if constexpr (Rows > 1) {
    if (rows > 0) {
      add_pairs<dtype, scaled, Pairs, Rows / 2>(x, x_stride, numbers, scales, rows, y, y_stride);
    }
  }
}

// Puts a lane's weights of a block of keys, unchanged.
inline void put_floats(const Vec (&weights)[2], size_t lane, size_t key, std::byte* to) {
  float* const at = reinterpret_cast<float*>(to) + lane * kSplitKeys + key;
  store(at, weights[0]);
  store(at + 16, weights[1]);
}

// The two products of a split: scores [heads, rows, kSplitKeys] of q [heads, rows, head_size], made
// by round(), and out [heads, rows, head_size] of weights [heads, rows, kSplitKeys], made by
// put_weights() from blocks of keys.
template <DType dtype>
struct ByRows {
  static constexpr DType kType = dtype;
  static constexpr size_t kStep = page_step_bytes(dtype), kScales = page_scales(dtype);
  // put_weights()'s output: with scales, weights are not rounded yet.
  using Weight = std::conditional_t<(kScales > 0), float, Rounded>;

  explicit ByRows(size_t /*rows*/) {}
  static void round(const float* from, size_t inner, size_t row, std::byte* x) {
    round_numbers(from, inner, reinterpret_cast<Rounded*>(x) + row * inner);
  }
  static void score(const std::byte* q, size_t rows, const SplitPages& pages, float* scores) {
    const size_t head_size = pages.head_size;
    for (size_t page = pages.begin; page < pages.end; ++page) {
      const auto* x = reinterpret_cast<const Rounded*>(q);
      float* to = scores + page * kPageTokens;
      const std::byte* step = pages.keys[page];
      for (size_t head = 0; head < pages.heads; ++head) {
        for (size_t r = 0; r < rows; ++r) store(to + r * kSplitKeys, zero());
        for (size_t d = 0; d < head_size; d += kBlock, step += kStep) {
          add_pairs<dtype, (kScales > 0), kPairs>(x + d, head_size, step + kScales, step, rows, to,
                                                  kSplitKeys);
        }
        x += rows * head_size;
        to += rows * kSplitKeys;
      }
    }
  }
  static void put_weights(const Vec (&weights)[2], size_t lane, size_t key, std::byte* to) {
    if constexpr (kScales > 0) return put_floats(weights, lane, key, to);
    float lanes[kBlock];
    store(lanes, weights[0]), store(lanes + 16, weights[1]);
    round_numbers(lanes, kBlock, reinterpret_cast<Rounded*>(to) + lane * kSplitKeys + key);
  }
  static void add(const std::byte* weights, size_t rows, const SplitPages& pages, std::byte*,
                  float* out) {
    const size_t head_size = pages.head_size;
    for (size_t i = 0; i < pages.heads * rows * head_size; i += 16) store(out + i, zero());
    for (size_t page = pages.begin; page < pages.end; ++page) {
      const auto* from = reinterpret_cast<const Weight*>(weights) + page * kPageTokens;
      float* to = out;
      const std::byte* step = pages.values[page];
      for (size_t head = 0; head < pages.heads; ++head) {
        for (size_t d = 0; d < head_size; d += kBlock, step += kStep) {
          const Rounded* x = nullptr;
          size_t x_stride = kSplitKeys;
          const std::byte* numbers = step + kScales;
          Rounded rounded[kAttendRows * kPageTokens];
          if constexpr (kScales > 0) {
            const Vec scales = load_f16(step);
            for (size_t r = 0; r < rows; ++r) {
              float row[kPageTokens];
              store(row, scaled(load(from + r * kSplitKeys), scales));
              round_numbers(row, kPageTokens, rounded + r * kPageTokens);
            }
            x = rounded, x_stride = kPageTokens;
          } else {
            x = from;
            if (!pages.whole(page)) {
              numbers = some_values(step, pages.skipped(page), pages.tokens(page), pages.scratch);
            }
          }
          for (size_t c = d; c < d + kBlock; c += 16, numbers += (kStep - kScales) / 2) {
            add_pairs<dtype, false, kPagePairs>(x, x_stride, numbers, nullptr, rows, to + c,
                                                head_size);
          }
        }
        from += rows * kSplitKeys;
        to += rows * head_size;
      }
    }
  }
};

}  // namespace
}  // namespace split::SPLIT_ISA
