// The two products of attention over the pages of a split, whose keys and values lie as these read
// them (kernels.h): by tiles where there are some, else by fused multiply-adds, with the same bits;
// or by pairs. For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include <type_traits>

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/kv_layout.h"
#include "device/cpu/kernels/matmul_bf16_fma.h"
#if defined(__AMX_BF16__)
#include "device/cpu/kernels/matmul_amx.h"
#elif defined(__AVX512BF16__)
#include "device/cpu/kernels/matmul_bf16_pairs.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// What a split's two products read. The bytes of the first of some heads, which lie side by side.
struct SplitPages {
  const std::byte* keys[kPagesOfSplit];
  const std::byte* values[kPagesOfSplit];
  size_t from, to;    // of the split's keys, those that some row sees
  size_t begin, end;  // the pages that hold them
  size_t heads;
  size_t head_size;
  size_t head_bytes;
  std::byte* scratch;  // room for two pages of a head in BF16

  // Of a page: how many of its first tokens no row sees, and how many there are with those that
  // one does.
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

// A page's weights of a row times the values' scales of a step; zeros where nothing is seen,
// whatever lies there.
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

// What queries and weights are rounded to, how many rows are multiplied together, and how:
// y [Rows, 16] += x [Rows, 2 Pairs] times numbers [2 Pairs, 16], and times the scales where there
// are.
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
constexpr size_t kPageRows = 8;  // of two chains, in 32 registers
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

// The same of all rows.
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

// Weights of a block of keys of a lane, as they are.
inline void put_floats(const Vec (&weights)[2], size_t lane, size_t key, std::byte* to) {
  float* const at = reinterpret_cast<float*>(to) + lane * kSplitKeys + key;
  store(at, weights[0]);
  store(at + 16, weights[1]);
}

// The two products of a split: scores [heads, rows, kSplitKeys] of q [heads, rows, head_size],
// which round() made, and out [heads, rows, head_size] of weights [heads, rows, kSplitKeys], which
// put_weights() made of blocks of keys.
template <DType dtype>
struct ByRows {
  static constexpr DType kType = dtype;
  static constexpr size_t kStep = page_step_bytes(dtype), kScales = page_scales(dtype);
  // As put_weights() leaves them: times scales, weights are not rounded yet.
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

#if defined(__AMX_BF16__)
// The same of one head. Tiles 0 to 3 are sums, 4 queries, 5 keys, 6 weights, 7 values.
class TilesOfPages {
 public:
  explicit TilesOfPages(size_t rows) {
    TileConfig config;
    for (size_t tile = 0; tile < 8; ++tile) {
      config.set(tile, tile == 5 ? 16 : tile == 7 ? kPagePairs : rows, tile == 6 ? 32 : 64);
    }
    config.load();
  }
  ~TilesOfPages() { tile_release(); }
  TilesOfPages(const TilesOfPages&) = delete;
  TilesOfPages& operator=(const TilesOfPages&) = delete;

  static void round(const float* from, size_t inner, size_t row, std::byte* x) {
    round_to_tiles<false>({from, inner, row, 0, inner, x});
  }

 protected:
  template <int tile>
  static void key_sums(const std::byte* at) {
    tile_load<5>(at, 64);
    tile_multiply<tile, 4, 5>();
  }
  template <int tile>
  static void value_sums(const std::byte* at) {
    tile_load<7>(at + tile * kPagePairs * 64, 64);
    tile_multiply<tile, 6, 7>();
  }
  static void load_weights(const std::byte* weights, size_t page) {
    tile_load<6>(weights + page / 2 * kTileBytes + page % 2 * 32, 64);
  }
};

template <DType dtype>
struct ByTiles;

template <>
struct ByTiles<DType::kBF16> : TilesOfPages {
  static constexpr DType kType = DType::kBF16;
  using TilesOfPages::TilesOfPages;

  static void score(const std::byte* q, size_t, const SplitPages& pages, float* scores) {
    size_t page = pages.begin;
    for (; page + 4 <= pages.end; page += 4) score_pages<4>(q, pages, page, scores);
    for (; page < pages.end; ++page) score_pages<1>(q, pages, page, scores);
  }
  static void put_weights(const Vec (&weights)[2], size_t lane, size_t key, std::byte* to) {
    store_halves(weights, to + key / kBlock * kTileBytes + lane * 64);
  }
  static void add(const std::byte* weights, size_t, const SplitPages& pages, std::byte*,
                  float* out) {
    SplitPages seen = pages;
    // The first page and the last may have tokens that no row sees.
    const auto hide = [&](size_t page, std::byte* to) {
      if (pages.whole(page)) return;
      for (size_t at = 0; at < pages.head_bytes; at += kTileBytes) {
        some_values(pages.values[page] + at, pages.skipped(page), pages.tokens(page), to + at);
      }
      seen.values[page] = to;
    };
    hide(pages.begin, pages.scratch);
    if (pages.end - 1 > pages.begin) hide(pages.end - 1, pages.scratch + pages.head_bytes);
    size_t d = 0;
    for (; d + 64 <= pages.head_size; d += 64) add_columns<4>(weights, seen, d, out);
    for (; d < pages.head_size; d += 32) add_columns<2>(weights, seen, d, out);
  }

 private:
  template <size_t Pages>
  static void score_pages(const std::byte* q, const SplitPages& pages, size_t page, float* scores) {
    const std::byte* const* const keys = pages.keys + page;
    tile_zero<0>();
    if constexpr (Pages == 4) tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (size_t at = 0; at < pages.head_bytes; at += kTileBytes) {
      tile_load<4>(q + at, 64);
      key_sums<0>(keys[0] + at);
      if constexpr (Pages == 4) {
        key_sums<1>(keys[1] + at), key_sums<2>(keys[2] + at), key_sums<3>(keys[3] + at);
      }
    }
    float* const to = scores + page * kPageTokens;
    constexpr size_t kStride = kSplitKeys * sizeof(float);
    tile_store<0>(to, kStride);
    if constexpr (Pages == 4) {
      tile_store<1>(to + 16, kStride), tile_store<2>(to + 32, kStride);
      tile_store<3>(to + 48, kStride);
    }
  }
  template <size_t Tiles>
  static void add_columns(const std::byte* weights, const SplitPages& pages, size_t d, float* out) {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (Tiles == 4) tile_zero<2>(), tile_zero<3>();
    for (size_t page = pages.begin; page < pages.end; ++page) {
      load_weights(weights, page);
      const std::byte* const at = pages.values[page] + d / 16 * kPagePairs * 64;
      value_sums<0>(at), value_sums<1>(at);
      if constexpr (Tiles == 4) value_sums<2>(at), value_sums<3>(at);
    }
    const size_t stride = pages.head_size * sizeof(float);
    tile_store<0>(out + d, stride), tile_store<1>(out + d + 16, stride);
    if constexpr (Tiles == 4) {
      tile_store<2>(out + d + 32, stride), tile_store<3>(out + d + 48, stride);
    }
  }
};

// A step of all pages at a time: its numbers become pairs of bf16 first.
template <>
struct ByTiles<DType::kQ8_0> : TilesOfPages {
  static constexpr DType kType = DType::kQ8_0;
  static constexpr size_t kStep = page_step_bytes(kType), kScales = page_scales(kType);
  using TilesOfPages::TilesOfPages;

  static void score(const std::byte* q, size_t rows, const SplitPages& pages, float* scores) {
    alignas(64) std::byte pairs[kPagesOfSplit * kTileBytes], sums[kPagesOfSplit * kTileBytes];
    for (size_t step = 0; step < pages.head_size / kBlock; ++step) {
      expand(pages, pages.keys, step, pairs);
      tile_load<4>(q + step * kTileBytes, 64);
      for (size_t page = pages.begin; page < pages.end; ++page) {
        const std::byte* const from = pairs + page * kTileBytes;
        std::byte* const to = sums + page * kTileBytes;
        if (page % 2 == 0) {
          tile_zero<0>(), key_sums<0>(from), tile_store<0>(to, 64);
        } else {
          tile_zero<1>(), key_sums<1>(from), tile_store<1>(to, 64);
        }
      }
      for (size_t page = pages.begin; page < pages.end; ++page) {
        const Vec scales = load_f16(pages.keys[page] + step * kStep);
        const auto* const from = reinterpret_cast<const float*>(sums + page * kTileBytes);
        for (size_t r = 0; r < rows; ++r) {
          float* const to = scores + r * kSplitKeys + page * kPageTokens;
          store(to, fma(load(from + 16 * r), scales, step == 0 ? zero() : load(to)));
        }
      }
    }
  }
  static void put_weights(const Vec (&weights)[2], size_t lane, size_t key, std::byte* to) {
    put_floats(weights, lane, key, to);
  }
  static void add(const std::byte* weights, size_t rows, const SplitPages& pages,
                  std::byte* rounded, float* out) {
    alignas(64) std::byte pairs[kPagesOfSplit * kTileBytes];
    const auto* const from = reinterpret_cast<const float*>(weights);
    const size_t stride = pages.head_size * sizeof(float);
    for (size_t step = 0; step < pages.head_size / kBlock; ++step, out += kBlock) {
      expand(pages, pages.values, step, pairs);
      for (size_t page = pages.begin / 2 * 2; page < pages.end; page += 2) {
        Vec scales[2] = {zero(), zero()};
        if (page >= pages.begin) scales[0] = load_f16(pages.values[page] + step * kStep);
        if (page + 1 < pages.end) scales[1] = load_f16(pages.values[page + 1] + step * kStep);
        for (size_t r = 0; r < rows; ++r) {
          const float* const w = from + r * kSplitKeys + page * kPageTokens;
          store_halves({scaled(load(w), scales[0]), scaled(load(w + kPageTokens), scales[1])},
                       rounded + page / 2 * kTileBytes + r * 64);
        }
      }
      tile_zero<0>(), tile_zero<1>();
      for (size_t page = pages.begin; page < pages.end; ++page) {
        load_weights(rounded, page);
        value_sums<0>(pairs + page * kTileBytes), value_sums<1>(pairs + page * kTileBytes);
      }
      tile_store<0>(out, stride), tile_store<1>(out + 16, stride);
    }
  }

 private:
  static void expand(const SplitPages& pages, const std::byte* const* from, size_t step,
                     std::byte* pairs) {
    for (size_t page = pages.begin; page < pages.end; ++page) {
      const std::byte* const numbers = from[page] + step * kStep + kScales;
      std::byte* const to = pairs + page * kTileBytes;
      for (size_t row = 0; row < kPairs; ++row) {
        _mm512_store_si512(to + row * 64, bf16_of_bytes(numbers + row * 32));
      }
    }
  }
};
#endif

}  // namespace
}  // namespace split::SPLIT_ISA
