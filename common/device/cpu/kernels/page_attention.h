// Attention over keys and values in BF16 or Q8_0, which lie in their pages as its products read
// them (attention_bf16_matmul.h). For kernels.cpp only, which is compiled once for each instruction
// set.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/attention_bf16_matmul.h"

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
inline Vec weights_of(Vec x) {
  const Vec whole =
      broadcast(12583039.0f);               // 1.5 * 2^23 + 127: of the sum the low bits are k + 127
  const Vec c = max(broadcast(-87.0f), x);  // a NaN stays
  const Vec shifted = fma(c, broadcast(1.442695041f), whole);
  const Vec r = fma(add(shifted, broadcast(-12583039.0f)), broadcast(-0.6931471806f), c);
  Vec p = fma(r, broadcast(8.333333333e-3f), broadcast(4.166666667e-2f));
  p = fma(p, r, broadcast(1.666666667e-1f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return mul(p, low_bits_as_exponent(shifted));
}

// Of each lane, a row of a head: of a split, or of those so far.
struct MergedLanes {
  float largest[kAttendRows], sum[kAttendRows];
};

// From 16 - n on: n ones, then zeros.
inline constexpr float kOnesFirst[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// The weights of the first seen[lane] scores of a split, zeros behind up to `most`, where and as
// the product reads them. All lanes at a time: each alone would wait for its own maximum and sum.
template <typename Products>
void weigh_pages(float* scores, std::byte* weights, float scale, const size_t* seen, size_t lanes,
                 size_t most, MergedLanes& split) {
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
    const float* const from = scores + lane * kSplitKeys;
    const Vec factor = broadcast(scale), top = broadcast(-split.largest[lane]);
    Vec total = zero();
    size_t key = 0;
    for (; key + kBlock <= seen[lane]; key += kBlock) {
      const Vec some[2] = {weights_of(fma(load(from + key), factor, top)),
                           weights_of(fma(load(from + key + 16), factor, top))};
      total = add(add(total, some[0]), some[1]);
      Products::put_weights(some, lane, key, weights);
    }
    for (; key < most; key += kBlock) {
      Vec some[2];
      for (size_t half = 0; half < 2; ++half) {
        const size_t first = key + 16 * half, count = seen[lane] > first ? seen[lane] - first : 0;
        some[half] = count == 0 ? zero() : weights_of(fma(load(from + first), factor, top));
        // Behind what is seen scores are -inf, whose weights are numbers where the row's are.
        if (count > 0 && count < 16) some[half] = mul(some[half], load(kOnesFirst + 16 - count));
      }
      total = add(add(total, some[0]), some[1]);
      Products::put_weights(some, lane, key, weights);
    }
    rows[lane] = total;
  }
  store(split.sum, sums(rows));
}

// total [lanes, n] += part [lanes, n], of the lanes that see the split, which is not the first.
inline void merge_pages(const MergedLanes& split, const bool* sees, const float* part, size_t n,
                        size_t lanes, float* total, MergedLanes& all) {
  const Vec largest[2] = {load(all.largest), load(split.largest)};
  const Vec minus_both = mul(max(largest[0], largest[1]), broadcast(-1.0f));
  float factors[2][kAttendRows];
  for (size_t i = 0; i < 2; ++i) store(factors[i], weights_of(add(largest[i], minus_both)));
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
  auto* const weights = reinterpret_cast<std::byte*>(scores + kAttendRows * kSplitKeys);
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
    weigh_pages<Products>(scores, weights, task.scale, seen, lanes, most, split);
    // Scores have been read: their room is scratch.
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
  attend_heads(task, kAttendRows / task.rows, attend_pages<ByRows<dtype>>);
}

void attend(const AttendTask& task) {
  switch (task.dtype) {
    case DType::kQ8_0:
      return attend_rounded<DType::kQ8_0>(task);
    case DType::kBF16:
      return attend_rounded<DType::kBF16>(task);
    case DType::kF16:
      return attend_heads(task, kAttendRows / task.rows, attend_of<DType::kF16>);
    default:
      return attend_heads(task, kAttendRows / task.rows, attend_of<DType::kF32>);
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
