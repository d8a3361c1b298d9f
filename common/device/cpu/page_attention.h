// Attention over keys and values in BF16 or Q8_0, which lie in their pages as its products read
// them (page_products.h). For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/attention.h"
#include "device/cpu/page_products.h"

namespace split::SPLIT_ISA {
namespace {

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

// Of each lane, a row of a head: of a split, or of those so far.
struct MergedLanes {
  float largest[kAttendRows], sum[kAttendRows];
};

// weights [lanes, kSplitKeys] of the first seen[lane] scores of a split, zeros behind up to `most`.
// All lanes at a time: each alone would wait for its own maximum and its own sum.
inline void weigh_pages(float* scores, float* weights, float scale, const size_t* seen,
                        size_t lanes, size_t most, MergedLanes& split) {
  static_assert(kAttendRows == 16);
  const auto whole = [&](size_t lane) { return (seen[lane] + 15) / 16 * 16; };
  Vec rows[kAttendRows];
  for (Vec& row : rows) row = zero();
  for (size_t lane = 0; lane < lanes; ++lane) {
    float* const from = scores + lane * kSplitKeys;
    for (size_t key = seen[lane]; key < whole(lane); ++key) from[key] = -__builtin_inff();
    rows[lane] = load(from);
    for (size_t key = 16; key < whole(lane); key += 16) {
      rows[lane] = max(rows[lane], load(from + key));
    }
  }
  store(split.largest, mul(maxima(rows), broadcast(scale)));
  for (size_t lane = 0; lane < lanes; ++lane) {
    const float* __restrict const from = scores + lane * kSplitKeys;
    float* __restrict const to = weights + lane * kSplitKeys;
    const float top = split.largest[lane];
    for (size_t key = 0; key < whole(lane); key += 16) {
      for (size_t i = key; i < key + 16; ++i) {
        to[i] = weight_of(__builtin_fmaf(from[i], scale, -top));
      }
    }
    for (size_t key = seen[lane]; key < whole(lane); ++key) to[key] = 0;
    for (size_t key = whole(lane); key < most; key += 16) store(to + key, zero());
    rows[lane] = zero();
    for (size_t key = 0; key < whole(lane); key += 16) rows[lane] = add(rows[lane], load(to + key));
  }
  store(split.sum, sums(rows));
}

// total [lanes, n] += part [lanes, n], of the lanes that see the split, which is not the first.
inline void merge_pages(const MergedLanes& split, const bool* sees, const float* part, size_t n,
                        size_t lanes, float* total, MergedLanes& all) {
  float factors[2][kAttendRows];
  for (size_t lane = 0; lane < kAttendRows; ++lane) {
    const float both = glsl::max(all.largest[lane], split.largest[lane]);
    factors[0][lane] = weight_of(all.largest[lane] - both);
    factors[1][lane] = weight_of(split.largest[lane] - both);
  }
  for (size_t lane = 0; lane < lanes; ++lane, total += n, part += n) {
    if (!sees[lane]) continue;
    const float before = factors[0][lane], now = factors[1][lane];
    for (size_t d = 0; d < n; ++d) total[d] = total[d] * before + part[d] * now;
    all.largest[lane] = glsl::max(all.largest[lane], split.largest[lane]);
    all.sum[lane] = all.sum[lane] * before + split.sum[lane] * now;
  }
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
  MergedLanes merged = {};
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
    // How many of the split's keys a row sees.
    const size_t most = pages.count * kPageTokens;
    size_t seen[kAttendRows] = {};
    bool sees[kAttendRows] = {};
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t keys = task.position + lane % task.rows + 1;
      seen[lane] = keys <= first ? 0 : keys - first < most ? keys - first : most;
      sees[lane] = seen[lane] > 0;
    }
    MergedLanes split = {};
    weigh_pages(scores, weights, task.scale, seen, lanes, most, split);
    // Scores have been read: their room is the rounded weights'.
    products.add(weights, task.rows, pages, reinterpret_cast<std::byte*>(scores),
                 first == 0 ? total : part);
    if (first == 0) {
      merged = split;
    } else {
      merge_pages(split, sees, part, head_size, lanes, total, merged);
    }
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    const float* const from = total + lane * head_size;
    float* const out = task.out + lane % task.rows * task.out_stride + lane / task.rows * head_size;
    // A sum that underflowed is a zero, whose sign may have come from pages that only other rows
    // see.
    const float inverse = 1.0f / merged.sum[lane];
    for (size_t d = 0; d < head_size; ++d) out[d] = from[d] * inverse + 0.0f;
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
