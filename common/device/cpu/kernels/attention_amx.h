// The two products of attention over the pages of a split by the tiles of AMX, with the bits of
// attention_bf16_matmul.h's fused multiply-adds. For kernels.cpp only.
#pragma once

#include "device/cpu/kernels/attention_bf16_matmul.h"
#include "device/cpu/kernels/matmul_amx.h"

namespace split::SPLIT_ISA {
namespace {

// The products of one head's pages by tiles. Tiles 0 to 3 are sums, 4 queries, 5 keys, 6 weights, 7
// values.
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

// Takes a step of all pages at a time: its numbers become pairs of bf16 first.
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

}  // namespace
}  // namespace split::SPLIT_ISA
