// Attention over keys and values in BF16, which lie in their pages as the products read them
// (kernels.h): by tiles where there are some, else by fused multiply-adds, with the same bits. For
// kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/attention.h"
#include "device/cpu/step_products.h"
#if defined(__AMX_BF16__)
#include "device/cpu/tiles.h"
#endif

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kPagePairs = kPageTokens / 2;
constexpr size_t kPagesOfSplit = kSplitKeys / kPageTokens;
static_assert(kPageTokens == 16 && kPageTokens == kKeysAtOnce);

// One row of values as halves of pairs: every second of them.
inline void keep_half(const float* v, size_t channels, size_t slot, std::byte* page) {
  std::byte* to = page + slot / 2 * 64 + slot % 2 * sizeof(uint16_t);
  for (size_t c = 0; c < channels; c += 16, to += kPagePairs * 64) {
    for (size_t i = 0; i < 16; ++i) {
      const auto bits = static_cast<uint16_t>(bf16_bits(v[c + i]) >> 16);
      __builtin_memcpy(to + i * 4, &bits, sizeof bits);
    }
  }
}
// Two rows, of which the first has an even slot.
inline void keep_pair(const float* v, size_t stride, size_t channels, size_t slot,
                      std::byte* page) {
  std::byte* to = page + slot / 2 * 64;
  for (size_t c = 0; c < channels; c += 16, to += kPagePairs * 64) {
    uint32_t words[16];
    for (size_t i = 0; i < 16; ++i) {
      words[i] = bf16_bits(v[c + i]) >> 16 | bf16_bits(v[stride + c + i]);
    }
    __builtin_memcpy(to, words, sizeof words);
  }
}
// One row of keys as a column of pairs.
inline void keep_column(const float* k, size_t channels, std::byte* to) {
  for (size_t c = 0; c < channels; c += kBlock) {
    uint32_t words[kPairs];
    round_halves(k + c, kBlock, reinterpret_cast<std::byte*>(words));
    for (size_t p = 0; p < kPairs; ++p, to += 64) {
      __builtin_memcpy(to, &words[p], sizeof words[p]);
    }
  }
}

void keep_pairs(const KeepTask& task) {
  for (size_t r = 0; r < task.rows; ++r) {
    keep_column(task.k + r * task.stride, task.channels,
                task.keys + (task.slot + r) * sizeof(uint32_t));
  }
  for (size_t r = 0; r < task.rows; ++r) {
    const size_t slot = task.slot + r;
    const float* const v = task.v + r * task.stride;
    if (slot % 2 == 0 && r + 1 < task.rows) {
      keep_pair(v, task.stride, task.channels, slot, task.values);
      ++r;
    } else {
      keep_half(v, task.channels, slot, task.values);
    }
  }
}

// A head's bytes of each page of a split, and of which head.
struct SplitPages {
  const std::byte* keys[kPagesOfSplit];
  const std::byte* values[kPagesOfSplit];
  size_t count;
  size_t head_size;
};

// y [rows, 16] += x [rows, 2 Pairs] times pairs [Pairs, 16].
#if defined(__AVX512F__)
constexpr size_t kPageRows = 8;  // of two chains, in 32 registers
#else
constexpr size_t kPageRows = 2;
#endif
template <size_t Pairs, size_t Rows = kPageRows>
void add_pairs(const float* x, size_t x_stride, const std::byte* pairs, size_t rows, float* y,
               size_t y_stride) {
  for (; rows >= Rows; rows -= Rows, x += Rows * x_stride, y += Rows * y_stride) {
    add_step<DType::kBF16, Rows, 1, Pairs>(x, x_stride, pairs, 0, nullptr, y, y_stride);
  }
  if constexpr (Rows > 1) {
    if (rows > 0) add_pairs<Pairs, Rows / 2>(x, x_stride, pairs, rows, y, y_stride);
  }
}

// The two products of a split. `q` [rows, head_size] and `weights` [rows, keys of its pages] are
// as round() made them; scores [rows, kSplitKeys], out [rows, head_size].
struct ByMultiplyAdd {
  explicit ByMultiplyAdd(size_t /*rows*/) {}
  static void round(const float* from, size_t inner, size_t row, std::byte* x) {
    round_to_floats({from, inner, row, 0, inner, x});
  }
  static void score(const std::byte* q, size_t rows, const SplitPages& pages, float* scores) {
    const auto* const x = reinterpret_cast<const float*>(q);
    for (size_t page = 0; page < pages.count; ++page) {
      float* const to = scores + page * kPageTokens;
      for (size_t r = 0; r < rows; ++r) store(to + r * kSplitKeys, zero());
      for (size_t d = 0; d < pages.head_size; d += kBlock) {
        add_pairs<kPairs>(x + d, pages.head_size, pages.keys[page] + d / 2 * 64, rows, to,
                          kSplitKeys);
      }
    }
  }
  static void add(const std::byte* weights, size_t rows, const SplitPages& pages, float* out) {
    const auto* const x = reinterpret_cast<const float*>(weights);
    const size_t stride = steps_of(pages.count * kPageTokens) * kBlock;
    for (size_t i = 0; i < rows * pages.head_size; i += 16) store(out + i, zero());
    for (size_t page = 0; page < pages.count; ++page) {
      for (size_t d = 0; d < pages.head_size; d += 16) {
        add_pairs<kPagePairs>(x + page * kPageTokens, stride,
                              pages.values[page] + d / 16 * kPagePairs * 64, rows, out + d,
                              pages.head_size);
      }
    }
  }
};

#if defined(__AMX_BF16__)
// Tiles 0 to 3 are sums, 4 queries, 5 keys, 6 weights, 7 values.
struct ByTiles {
  explicit ByTiles(size_t rows) {
    TileConfig config;
    for (size_t tile = 0; tile < 8; ++tile) {
      config.set(tile, tile == 5 ? 16 : tile == 7 ? kPagePairs : rows, tile == 6 ? 32 : 64);
    }
    config.load();
  }
  ~ByTiles() { tile_release(); }
  ByTiles(const ByTiles&) = delete;
  ByTiles& operator=(const ByTiles&) = delete;

  static void round(const float* from, size_t inner, size_t row, std::byte* x) {
    round_to_tiles({from, inner, row, 0, inner, x});
  }
  void score(const std::byte* q, size_t, const SplitPages& pages, float* scores) const {
    size_t page = 0;
    for (; page + 4 <= pages.count; page += 4) score_pages<4>(q, pages, page, scores);
    for (; page < pages.count; ++page) score_pages<1>(q, pages, page, scores);
  }
  void add(const std::byte* weights, size_t, const SplitPages& pages, float* out) const {
    size_t d = 0;
    for (; d + 64 <= pages.head_size; d += 64) add_columns<4>(weights, pages, d, out);
    for (; d < pages.head_size; d += 32) add_columns<2>(weights, pages, d, out);
  }

 private:
  template <int tile>
  static void key_sums(const std::byte* at) {
    tile_load<5>(at, 64);
    tile_multiply<tile, 4, 5>();
  }
  template <size_t Pages>
  static void score_pages(const std::byte* q, const SplitPages& pages, size_t page, float* scores) {
    const std::byte* const* const keys = pages.keys + page;
    tile_zero<0>();
    if constexpr (Pages == 4) tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (size_t at = 0; at < pages.head_size / kBlock * kTileBytes; at += kTileBytes) {
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

  template <int tile>
  static void value_sums(const std::byte* at) {
    tile_load<7>(at + tile * kPagePairs * 64, 64);
    tile_multiply<tile, 6, 7>();
  }
  template <size_t Tiles>
  static void add_columns(const std::byte* weights, const SplitPages& pages, size_t d, float* out) {
    tile_zero<0>(), tile_zero<1>();
    if constexpr (Tiles == 4) tile_zero<2>(), tile_zero<3>();
    for (size_t page = 0; page < pages.count; ++page) {
      tile_load<6>(weights + page / 2 * kTileBytes + page % 2 * 32, 64);
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
#endif

// A head's values of a page, with zeros for all tokens from `count` on.
inline const std::byte* first_values(const std::byte* values, size_t head_size, size_t count,
                                     std::byte* to) {
  for (size_t row = 0; row < head_size / 16 * kPagePairs; ++row) {
    uint32_t words[16];
    __builtin_memcpy(words, values + row * 64, sizeof words);
    const size_t token = row % kPagePairs * 2;
    const uint32_t mask = token + 1 < count ? 0xffffffff : token < count ? 0xffff : 0;
    for (uint32_t& word : words) word &= mask;
    __builtin_memcpy(to + row * 64, words, sizeof words);
  }
  return to;
}

inline bool all_finite(const std::byte* values, size_t head_size) {
  uint32_t found = 0;
  for (size_t at = 0; at < head_size * kPageTokens * sizeof(uint16_t); at += 64) {
    uint32_t words[16];
    __builtin_memcpy(words, values + at, sizeof words);
    for (const uint32_t word : words) {
      // Exponents of ones carry into the sign.
      found |= ((word & 0x7f807f80) + 0x00800080) & 0x80008000;
    }
  }
  return found == 0;
}

// e^x for x <= 0: 2^k e^r with |r| <= ln 2 / 2, to 4e-6, far below the rounding to bf16 that
// follows. Below -87 what e^-87 is, 1.6e-38.
inline float weight_of(float x) {
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
  const float c = x < -87.0f ? -87.0f : x;
  const float shifted = __builtin_fmaf(c, 1.442695041f, kWhole);
  const float r = __builtin_fmaf(shifted - kWhole, -0.6931471806f, c);
  float p = __builtin_fmaf(r, 8.333333333e-3f, 4.166666667e-2f);
  p = __builtin_fmaf(p, r, 1.666666667e-1f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  // The bits of 1.5 * 2^23 leave by the shift.
  return p * __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) + 127) << 23);
}

// Weights [most] of the first `seen` scores of a split, zeros behind.
inline void weigh_pages(float* scores, float* weights, float scale, size_t seen, size_t most,
                        Merged& split) {
  const size_t whole = (seen + 15) / 16 * 16;
  const Vec factor = broadcast(scale);
  for (size_t key = 0; key < whole; key += 16) store(scores + key, mul(load(scores + key), factor));
  for (size_t key = seen; key < whole; ++key) scores[key] = -__builtin_inff();
  Vec largest = load(scores);
  for (size_t key = 16; key < whole; key += 16) largest = max(largest, load(scores + key));
  float lanes[16];
  store(lanes, largest);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = glsl::max(lanes[i], lanes[i + half]);
  }
  split.largest = lanes[0];
  const float top = lanes[0];
  for (size_t key = 0; key < whole; ++key) weights[key] = weight_of(scores[key] - top);
  for (size_t key = seen; key < whole; ++key) weights[key] = 0;
  for (size_t key = whole; key < most; key += 16) store(weights + key, zero());
  Vec chains = zero();
  for (size_t key = 0; key < whole; key += 16) chains = add(chains, load(weights + key));
  split.sum = sum(chains);
}

template <typename Products>
void attend_pages(const AttendTask& task) {
  const size_t head_size = task.head_size, end = task.position + task.rows;
  // Of attend_scratch().
  auto* const tail = reinterpret_cast<std::byte*>(task.scratch);
  float* const rounded_q = task.scratch + kPageTokens * head_size;
  float* const part = rounded_q + kAttendRows * head_size;
  float* const total = part + kAttendRows * head_size;
  float* const scores = total + kAttendRows * head_size;
  float* const weights = scores + kAttendRows * kSplitKeys;
  auto* const q = reinterpret_cast<std::byte*>(rounded_q);
  auto* const rounded = reinterpret_cast<std::byte*>(scores);  // weights, once scores are read

  const size_t last = (end - 1) / kPageTokens;
  const auto head_of = [&](const std::byte* pages, size_t page) {
    return pages +
           (task.pages[page] * task.channels + task.head_offset) * kPageTokens * sizeof(uint16_t);
  };
  const std::byte* const last_values =
      end % kPageTokens == 0
          ? head_of(task.values, last)
          : first_values(head_of(task.values, last), head_size, end % kPageTokens, tail);
  const auto values_of = [&](size_t page) {
    return page == last ? last_values : head_of(task.values, page);
  };
  // A weight of zero hides what a row does not see, unless that is no number.
  for (size_t page = task.position / kPageTokens; task.rows > 1 && page <= last; ++page) {
    if (all_finite(values_of(page), head_size)) continue;
    AttendTask one = task;
    for (one.rows = 1; one.position < end; ++one.position) {
      attend_pages<Products>(one);
      one.q += task.q_stride;
      one.out += task.out_stride;
    }
    return;
  }

  const Products products(task.rows);
  for (size_t r = 0; r < task.rows; ++r) {
    Products::round(task.q + r * task.q_stride, head_size, r, q);
  }
  Merged merged[kAttendRows];
  for (size_t first = 0; first < end; first += kSplitKeys) {
    const size_t page0 = first / kPageTokens;
    SplitPages pages;
    pages.head_size = head_size;
    pages.count = last - page0 + 1 < kPagesOfSplit ? last - page0 + 1 : kPagesOfSplit;
    for (size_t i = 0; i < pages.count; ++i) {
      pages.keys[i] = head_of(task.keys, page0 + i);
      pages.values[i] = values_of(page0 + i);
      // Pages are read in stripes, which no hardware prefetcher follows; those of a prompt are in
      // L2.
      for (size_t line = 0;
           task.rows < kPageTokens && line < head_size * kPageTokens * sizeof(uint16_t);
           line += 64) {
        __builtin_prefetch(pages.values[i] + line);
        if (page0 + i + kPagesOfSplit <= last) {
          __builtin_prefetch(head_of(task.keys, page0 + i + kPagesOfSplit) + line);
        }
      }
    }
    products.score(q, task.rows, pages, scores);
    // The first row that sees the split, and how many of its keys a row sees.
    const size_t row0 = first > task.position ? first - task.position : 0;
    const size_t most = pages.count * kPageTokens;
    Merged split[kAttendRows];
    for (size_t r = 0; r < task.rows; ++r) {
      const size_t seen = r < row0 ? 0 : task.position + r + 1 - first;
      weigh_pages(scores + r * kSplitKeys, weights + r * kSplitKeys, task.scale,
                  seen < most ? seen : most, most, split[r]);
    }
    for (size_t r = 0; r < task.rows; ++r) {
      Products::round(weights + r * kSplitKeys, most, r, rounded);
    }
    products.add(rounded, task.rows, pages, first == 0 ? total : part);
    for (size_t r = row0; r < task.rows; ++r) {
      if (first == 0) {
        merged[r] = split[r];
      } else {
        const auto weight = [](const float* x, float* y) {
          for (int i = 0; i < 2; ++i) y[i] = weight_of(x[i]);
        };
        merge(split[r], part + r * head_size, head_size, total + r * head_size, merged[r], weight);
      }
    }
  }
  for (size_t r = 0; r < task.rows; ++r) {
    float* const out = task.out + r * task.out_stride;
    // A sum that underflowed is a zero, whose sign may have come from pages that only other rows
    // see.
    for (size_t d = 0; d < head_size; ++d) out[d] = total[r * head_size + d] / merged[r].sum + 0.0f;
  }
}

void attend(const AttendTask& task) {
  switch (task.dtype) {
    case DType::kF16:
      return attend_of<DType::kF16>(task);
    case DType::kQ8_0:
      return attend_of<DType::kQ8_0>(task);
    case DType::kBF16:
      break;
    default:
      return attend_of<DType::kF32>(task);
  }
  [[maybe_unused]] const FlushDenormals flush;
#if defined(__AMX_BF16__)
  constexpr size_t kRowsOfTiles = 3;  // fewer are not worth the setting up
  if (task.rows >= kRowsOfTiles) return attend_pages<ByTiles>(task);
#endif
  attend_pages<ByMultiplyAdd>(task);
}

}  // namespace
}  // namespace split::SPLIT_ISA
