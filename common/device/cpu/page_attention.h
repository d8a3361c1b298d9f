// Attention over keys and values in BF16 or Q8_0, which lie in their pages as the products read
// them (kernels.h): by tiles where there are some, else by fused multiply-adds, with the same bits.
// For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/attention.h"
#include "device/cpu/kept_pages.h"
#include "device/cpu/step_products.h"
#if defined(__AMX_BF16__)
#include "device/cpu/tiles.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// What a split's two products read. The bytes of the first of some heads, which lie side by side.
struct SplitPages {
  const std::byte* keys[kPagesOfSplit];
  const std::byte* values[kPagesOfSplit];
  const std::byte* next;  // keys of the split after this one, or null
  size_t count;
  size_t tokens;  // of them, which the last row sees
  size_t heads;
  size_t head_size;
  size_t head_bytes;
  std::byte* tail;  // room for a page of a head
};

// Asks for a head of a page.
inline void fetch(const std::byte* from, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}
// What is multiplied some heads later, of this page or the next, which may be null.
inline void fetch_ahead(const SplitPages& pages, const std::byte* page, const std::byte* next,
                        size_t head) {
  constexpr size_t kHeads = 4;
  const size_t ahead = head + (pages.heads < kHeads ? pages.heads : kHeads);
  if (ahead < pages.heads) {
    fetch(page + ahead * pages.head_bytes, pages.head_bytes);
  } else if (next != nullptr) {
    fetch(next + (ahead - pages.heads) * pages.head_bytes, pages.head_bytes);
  }
}

// A step of values of a page in BF16, with zeros for all tokens from `count` on.
inline const std::byte* first_values(const std::byte* values, size_t count, std::byte* to) {
  for (size_t row = 0; row < 2 * kPagePairs; ++row) {
    uint32_t words[16];
    __builtin_memcpy(words, values + row * 64, sizeof words);
    const size_t token = row % kPagePairs * 2;
    const uint32_t mask = token + 1 < count ? 0xffffffff : token < count ? 0xffff : 0;
    for (uint32_t& word : words) word &= mask;
    __builtin_memcpy(to + row * 64, words, sizeof words);
  }
  return to;
}

// A page's weights of a row times the values' scales of a step; zeros where nothing is seen,
// whatever lies there.
inline void scale_weights(const float* weights, const std::byte* scales, float* scaled) {
  float factors[kPageTokens];
  store(factors, load_f16(scales));
  for (size_t i = 0; i < kPageTokens; ++i) {
    scaled[i] = weights[i] == 0 ? 0 : weights[i] * factors[i];
  }
}

// y [rows, 16] += x [rows, 2 Pairs] times numbers [2 Pairs, 16], and times the scales where there
// are.
#if defined(__AVX512F__)
constexpr size_t kPageRows = 8;  // of two chains, in 32 registers
#else
constexpr size_t kPageRows = 2;
#endif
template <DType dtype, size_t Pairs, size_t Rows = kPageRows>
void add_pairs(const float* x, size_t x_stride, const std::byte* numbers, const std::byte* scales,
               size_t rows, float* y, size_t y_stride) {
  for (; rows >= Rows; rows -= Rows, x += Rows * x_stride, y += Rows * y_stride) {
    add_step<dtype, Rows, 1, Pairs>(x, x_stride, numbers, 0, scales, y, y_stride);
  }
  if constexpr (Rows > 1) {
    if (rows > 0) {
      add_pairs<dtype, Pairs, Rows / 2>(x, x_stride, numbers, scales, rows, y, y_stride);
    }
  }
}

// The two products of a split: scores [heads, rows, kSplitKeys] of q [heads, rows, head_size],
// which round() made, and out [heads, rows, head_size] of weights [heads, rows, kSplitKeys].
template <DType dtype>
struct ByMultiplyAdd {
  static constexpr DType kType = dtype;
  static constexpr size_t kStep = page_step_bytes(dtype), kScales = page_scales(dtype);

  explicit ByMultiplyAdd(size_t /*rows*/) {}
  static void round(const float* from, size_t inner, size_t row, std::byte* x) {
    round_to_floats({from, inner, row, 0, inner, x});
  }
  static void score(const std::byte* q, size_t rows, const SplitPages& pages, float* scores) {
    const size_t head_size = pages.head_size;
    for (size_t page = 0; page < pages.count; ++page) {
      const auto* x = reinterpret_cast<const float*>(q);
      float* to = scores + page * kPageTokens;
      const std::byte* step = pages.keys[page];
      const std::byte* const next = page + 1 < pages.count ? pages.keys[page + 1] : pages.values[0];
      for (size_t head = 0; head < pages.heads; ++head) {
        fetch_ahead(pages, pages.keys[page], next, head);
        for (size_t r = 0; r < rows; ++r) store(to + r * kSplitKeys, zero());
        for (size_t d = 0; d < head_size; d += kBlock, step += kStep) {
          add_pairs<dtype, kPairs>(x + d, head_size, step + kScales, kScales > 0 ? step : nullptr,
                                   rows, to, kSplitKeys);
        }
        x += rows * head_size;
        to += rows * kSplitKeys;
      }
    }
  }
  static void add(const float* weights, size_t rows, const SplitPages& pages, std::byte*,
                  float* out) {
    const size_t head_size = pages.head_size;
    for (size_t i = 0; i < pages.heads * rows * head_size; i += 16) store(out + i, zero());
    for (size_t page = 0; page < pages.count; ++page) {
      const float* from = weights + page * kPageTokens;
      const size_t tokens = pages.tokens - page * kPageTokens;
      float* to = out;
      const std::byte* step = pages.values[page];
      const std::byte* const next = page + 1 < pages.count ? pages.values[page + 1] : pages.next;
      for (size_t head = 0; head < pages.heads; ++head) {
        fetch_ahead(pages, pages.values[page], next, head);
        float x[kAttendRows * kPageTokens];
        for (size_t d = 0; d < head_size; d += kBlock, step += kStep) {
          for (size_t r = 0; (d == 0 || kScales > 0) && r < rows; ++r) {
            float scaled[kPageTokens];
            const float* w = from + r * kSplitKeys;
            if constexpr (kScales > 0) scale_weights(w, step, scaled), w = scaled;
            for (size_t i = 0; i < kPageTokens; ++i) {
              x[r * kPageTokens + i] = __builtin_bit_cast(float, bf16_bits(w[i]));
            }
          }
          const std::byte* numbers = step + kScales;
          if (dtype == DType::kBF16 && tokens < kPageTokens) {
            numbers = first_values(step, tokens, pages.tail);
          }
          for (size_t c = d; c < d + kBlock; c += 16, numbers += (kStep - kScales) / 2) {
            add_pairs<dtype, kPagePairs>(x, kPageTokens, numbers, nullptr, rows, to + c, head_size);
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
    round_to_tiles({from, inner, row, 0, inner, x});
  }

 protected:
  // Those of a prompt are in L2.
  static void fetch_all(const SplitPages& pages, size_t rows) {
    if (rows == kAttendRows) return;
    for (size_t page = 0; page < pages.count; ++page) {
      fetch(pages.values[page], pages.head_bytes);
      if (page > 0) fetch(pages.keys[page], pages.head_bytes);
    }
  }
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

  static void score(const std::byte* q, size_t rows, const SplitPages& pages, float* scores) {
    fetch_all(pages, rows);
    size_t page = 0;
    for (; page + 4 <= pages.count; page += 4) score_pages<4>(q, pages, page, scores);
    for (; page < pages.count; ++page) score_pages<1>(q, pages, page, scores);
  }
  static void add(const float* weights, size_t rows, const SplitPages& pages, std::byte* rounded,
                  float* out) {
    for (size_t r = 0; r < rows; ++r) {
      round(weights + r * kSplitKeys, pages.count * kPageTokens, r, rounded);
    }
    SplitPages seen = pages;
    if (const size_t tokens = pages.tokens % kPageTokens; tokens > 0) {
      const std::byte*& last = seen.values[pages.count - 1];
      for (size_t at = 0; at < pages.head_bytes; at += kTileBytes) {
        first_values(last + at, tokens, pages.tail + at);
      }
      last = pages.tail;
    }
    size_t d = 0;
    for (; d + 64 <= pages.head_size; d += 64) add_columns<4>(rounded, seen, d, out);
    for (; d < pages.head_size; d += 32) add_columns<2>(rounded, seen, d, out);
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
    for (size_t page = 0; page < pages.count; ++page) {
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
    fetch_all(pages, rows);
    alignas(64) std::byte pairs[kPagesOfSplit * kTileBytes], sums[kPagesOfSplit * kTileBytes];
    for (size_t step = 0; step < pages.head_size / kBlock; ++step) {
      expand(pages.keys, pages.count, step, pairs);
      tile_load<4>(q + step * kTileBytes, 64);
      for (size_t page = 0; page < pages.count; ++page) {
        const std::byte* const from = pairs + page * kTileBytes;
        std::byte* const to = sums + page * kTileBytes;
        if (page % 2 == 0) {
          tile_zero<0>(), key_sums<0>(from), tile_store<0>(to, 64);
        } else {
          tile_zero<1>(), key_sums<1>(from), tile_store<1>(to, 64);
        }
      }
      for (size_t page = 0; page < pages.count; ++page) {
        const Vec scales = load_f16(pages.keys[page] + step * kStep);
        const auto* const from = reinterpret_cast<const float*>(sums + page * kTileBytes);
        for (size_t r = 0; r < rows; ++r) {
          float* const to = scores + r * kSplitKeys + page * kPageTokens;
          store(to, fma(load(from + 16 * r), scales, step == 0 ? zero() : load(to)));
        }
      }
    }
  }
  static void add(const float* weights, size_t rows, const SplitPages& pages, std::byte* rounded,
                  float* out) {
    alignas(64) std::byte pairs[kPagesOfSplit * kTileBytes];
    const size_t stride = pages.head_size * sizeof(float);
    for (size_t step = 0; step < pages.head_size / kBlock; ++step, out += kBlock) {
      expand(pages.values, pages.count, step, pairs);
      for (size_t r = 0; r < rows; ++r) {
        float scaled[kSplitKeys];
        for (size_t page = 0; page < pages.count; ++page) {
          scale_weights(weights + r * kSplitKeys + page * kPageTokens,
                        pages.values[page] + step * kStep, scaled + page * kPageTokens);
        }
        round(scaled, pages.count * kPageTokens, r, rounded);
      }
      tile_zero<0>(), tile_zero<1>();
      for (size_t page = 0; page < pages.count; ++page) {
        load_weights(rounded, page);
        value_sums<0>(pairs + page * kTileBytes), value_sums<1>(pairs + page * kTileBytes);
      }
      tile_store<0>(out, stride), tile_store<1>(out + 16, stride);
    }
  }

 private:
  static void expand(const std::byte* const* from, size_t count, size_t step, std::byte* pairs) {
    for (size_t page = 0; page < count; ++page) {
      const std::byte* const numbers = from[page] + step * kStep + kScales;
      std::byte* const to = pairs + page * kTileBytes;
      for (size_t row = 0; row < kPairs; ++row) expand_row(numbers + row * 32, to + row * 64);
    }
  }
};
#endif

// The values of the first `count` tokens of a page in BF16.
inline bool all_finite(const std::byte* values, size_t bytes, size_t count, std::byte* tail) {
  constexpr size_t kStep = page_step_bytes(DType::kBF16);
  uint32_t found = 0;
  for (size_t step = 0; step < bytes; step += kStep) {
    const std::byte* const from =
        count < kPageTokens ? first_values(values + step, count, tail) : values + step;
    for (size_t at = 0; at < kStep; at += 64) {
      uint32_t words[16];
      __builtin_memcpy(words, from + at, sizeof words);
      for (const uint32_t word : words) {
        // Exponents of ones carry into the sign.
        found |= ((word & 0x7f807f80) + 0x00800080) & 0x80008000;
      }
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

// Heads by rows at most kAttendRows.
template <typename Products>
void attend_pages(const AttendTask& task) {
  constexpr DType kType = Products::kType;
  const size_t head_size = task.head_size, end = task.position + task.rows;
  const size_t lanes = task.heads * task.rows;
  // Of attend_scratch().
  float* const rounded_q = task.scratch + kPageTokens * head_size;
  float* const part = rounded_q + kAttendRows * head_size;
  float* const total = part + kAttendRows * head_size;
  float* const scores = total + kAttendRows * head_size;
  float* const weights = scores + kAttendRows * kSplitKeys;
  auto* const q = reinterpret_cast<std::byte*>(rounded_q);

  SplitPages pages;
  pages.heads = task.heads;
  pages.head_size = head_size;
  pages.head_bytes = kPageTokens * kv_bytes(kType, head_size);
  pages.tail = reinterpret_cast<std::byte*>(task.scratch);
  const size_t last = (end - 1) / kPageTokens;
  const auto heads_of = [&](const std::byte* all, size_t page) {
    return all + kPageTokens * (task.pages[page] * kv_bytes(kType, task.channels) +
                                kv_bytes(kType, task.head_offset));
  };
  // A weight of zero hides what a row does not see, unless that is no number.
  for (size_t page = task.position / kPageTokens;
       kType == DType::kBF16 && task.rows > 1 && page <= last; ++page) {
    if (all_finite(heads_of(task.values, page), task.heads * pages.head_bytes,
                   end - page * kPageTokens, pages.tail)) {
      continue;
    }
    AttendTask one = task;
    for (one.rows = 1; one.position < end; ++one.position) {
      attend_pages<Products>(one);
      one.q += task.q_stride;
      one.out += task.out_stride;
    }
    return;
  }

  const Products products(task.rows);
  for (size_t lane = 0; lane < lanes; ++lane) {
    const size_t head = lane / task.rows, row = lane % task.rows;
    Products::round(task.q + row * task.q_stride + head * head_size, head_size, lane, q);
  }
  Merged merged[kAttendRows];
  for (size_t first = 0; first < end; first += kSplitKeys) {
    const size_t page0 = first / kPageTokens;
    pages.tokens = end - first < kSplitKeys ? end - first : kSplitKeys;
    pages.count = (pages.tokens + kPageTokens - 1) / kPageTokens;
    for (size_t i = 0; i < pages.count; ++i) {
      pages.keys[i] = heads_of(task.keys, page0 + i);
      pages.values[i] = heads_of(task.values, page0 + i);
    }
    pages.next = page0 + pages.count <= last ? heads_of(task.keys, page0 + pages.count) : nullptr;
    products.score(q, task.rows, pages, scores);
    // The first row that sees the split, and how many of its keys a row sees.
    const size_t row0 = first > task.position ? first - task.position : 0;
    const size_t most = pages.count * kPageTokens;
    Merged split[kAttendRows];
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t row = lane % task.rows;
      const size_t seen = row < row0 ? 0 : task.position + row + 1 - first;
      weigh_pages(scores + lane * kSplitKeys, weights + lane * kSplitKeys, task.scale,
                  seen < most ? seen : most, most, split[lane]);
    }
    // Scores have been read: their room is the rounded weights'.
    products.add(weights, task.rows, pages, reinterpret_cast<std::byte*>(scores),
                 first == 0 ? total : part);
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (lane % task.rows < row0) continue;
      if (first == 0) {
        merged[lane] = split[lane];
      } else {
        const auto weight = [](const float* x, float* y) {
          for (int i = 0; i < 2; ++i) y[i] = weight_of(x[i]);
        };
        merge(split[lane], part + lane * head_size, head_size, total + lane * head_size,
              merged[lane], weight);
      }
    }
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    const float* const from = total + lane * head_size;
    float* const out = task.out + lane % task.rows * task.out_stride + lane / task.rows * head_size;
    // A sum that underflowed is a zero, whose sign may have come from pages that only other rows
    // see.
    for (size_t d = 0; d < head_size; ++d) out[d] = from[d] / merged[lane].sum + 0.0f;
  }
}

// Calls attend(task) for `each` heads at a time.
template <typename Attend>
void attend_heads(const AttendTask& task, size_t each, const Attend& attend) {
  for (size_t head = 0; head < task.heads; head += each) {
    AttendTask some = task;
    some.heads = task.heads - head < each ? task.heads - head : each;
    some.head_offset += head * task.head_size;
    some.q += head * task.head_size;
    some.out += head * task.head_size;
    attend(some);
  }
}

template <DType dtype>
void attend_rounded(const AttendTask& task) {
  [[maybe_unused]] const FlushDenormals flush;
#if defined(__AMX_BF16__)
  constexpr size_t kRowsOfTiles = 3;  // fewer are not worth the setting up
  if (task.rows >= kRowsOfTiles) return attend_heads(task, 1, attend_pages<ByTiles<dtype>>);
#endif
  // A page's heads one after another: it is read as it lies.
  attend_heads(task, kAttendRows / task.rows, attend_pages<ByMultiplyAdd<dtype>>);
}

void attend(const AttendTask& task) {
  switch (task.dtype) {
    case DType::kQ8_0:
      return attend_rounded<DType::kQ8_0>(task);
    case DType::kBF16:
      return attend_rounded<DType::kBF16>(task);
    case DType::kF16:
      return attend_heads(task, 1, attend_of<DType::kF16>);
    default:
      return attend_heads(task, 1, attend_of<DType::kF32>);
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
