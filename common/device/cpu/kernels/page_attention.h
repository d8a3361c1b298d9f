// Attention over keys and values in BF16 or Q8_0, which lie in their pages in the order of the
// products (attention_bf16_matmul.h). For kernels.cpp only, which is compiled once for each
// instruction set.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/attention_bf16_matmul.h"
#if defined(__AMX_BF16__)
#include "device/cpu/kernels/attention_amx.h"
#endif

namespace split::SPLIT_ISA {
namespace {

// Whether the values of the tokens [from, to) of a page in BF16 are finite.
inline bool all_finite(const std::byte* values, size_t bytes, size_t from, size_t to,
                       std::byte* scratch) {
  constexpr size_t kStep = page_step_bytes(DType::kBF16);
  uint32_t found = 0;
  for (size_t step = 0; step < bytes; step += kStep) {
    const bool whole = from == 0 && to >= kPageTokens;
    const std::byte* const some =
        whole ? values + step : some_values(values + step, from, to, scratch);
    for (size_t at = 0; at < kStep; at += 64) {
      uint32_t words[16];
      __builtin_memcpy(words, some + at, sizeof words);
      for (const uint32_t word : words) {
        // Exponents of ones carry into the sign.
        found |= ((word & 0x7f807f80) + 0x00800080) & 0x80008000;
      }
    }
  }
  return found == 0;
}

// y, but 0 in lanes whose x is below `least`; a NaN is not.
inline Vec unless_below(Vec x, float least, Vec y) {
#if defined(__AVX512F__)
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, broadcast(least).v, _CMP_NLT_UQ), y.v)};
#elif defined(__AVX2__)
  const auto kept = [&](__m256 of, __m256 value) {
    return _mm256_and_ps(_mm256_cmp_ps(of, _mm256_set1_ps(least), _CMP_NLT_UQ), value);
  };
  return {kept(x.a, y.a), kept(x.b, y.b)};
#else
  float lanes[16], values[16];
  store(lanes, x), store(values, y);
  for (size_t i = 0; i < 16; ++i) values[i] = lanes[i] < least ? 0.0f : values[i];
  return load(values);
#endif
}

// weight_f of the op table, with its bits: e^x for x <= 0, 0 below -28.
inline Vec weights_of(Vec x) {
  const auto by = [](Vec a, float b) { return mul(a, broadcast(b)); };
  const auto plus = [](Vec a, float b) { return add(a, broadcast(b)); };
  const Vec c = max(broadcast(-28.0f), x);                     // a NaN stays
  const Vec shifted = plus(by(c, 1.442695041f), 12583039.0f);  // the low bits are k + 127
  const Vec k = plus(shifted, -12583039.0f);
  const Vec r = add(add(c, by(k, -0.693359375f)), by(k, 2.12194440e-4f));
  Vec p = plus(by(r, 1.393370113e-3f), 8.363181008e-3f);
  p = plus(mul(p, r), 4.166646446e-2f);
  p = plus(mul(p, r), 1.666657697e-1f);
  p = plus(mul(p, r), 0.5f);
  const Vec e = plus(add(mul(mul(r, r), p), r), 1.0f);
  return unless_below(x, -28.0f, mul(e, low_bits_as_exponent(shifted)));
}

// For each lane, a query of a head: a split's figures, or all splits' so far.
struct MergedLanes {
  float largest[kAttendRows], sum[kAttendRows];
};

// From 16 - n on: n zeros, then ones; from 32 - n on: n ones, then zeros.
inline constexpr float kOnesBetween[48] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// Makes the weights of the scores of a split that each lane sees, zeros for the others of its
// pages, in the product's layout. Takes all lanes at a time: each alone would wait for its own
// maximum and sum.
template <typename Products>
void weigh_pages(float* scores, std::byte* weights, float scale, float cap, const SeenSplit& seen,
                 size_t head_rows, size_t lanes, const SplitPages& pages, MergedLanes& split) {
  static_assert(kAttendRows == 16);
  const float left = cap > 0 ? 1.0f : scale;  // the scale that uncapped scores still need
  Vec rows[kAttendRows];
  for (Vec& row : rows) row = zero();
  for (size_t lane = 0; lane < lanes; ++lane) {
    float* const from = scores + lane * kSplitKeys;
    const SeenKeys& own = seen.keys[lane % head_rows];
    const size_t begin = own.from / 16 * 16, end = (own.to + 15) / 16 * 16;
    if (cap > 0) cap_scores(from, begin, end, scale, cap);
    for (size_t key = begin; key < own.from; ++key) from[key] = -__builtin_inff();
    for (size_t key = own.to; key < end; ++key) from[key] = -__builtin_inff();
    rows[lane] = load(from + begin);
    for (size_t key = begin + 16; key < end; key += 16) {
      rows[lane] = max(rows[lane], load(from + key));
    }
  }
  store(split.largest, mul(maxima(rows), broadcast(left)));
  for (size_t lane = 0; lane < lanes; ++lane) {
    const float* const from = scores + lane * kSplitKeys;
    const Vec factor = broadcast(left), top = broadcast(-split.largest[lane]);
    const SeenKeys own = seen.keys[lane % head_rows];
    Vec total = zero();
    const auto cut = [&](size_t key) {
      Vec some[2];
      for (size_t half = 0; half < 2; ++half) {
        const size_t first = key + 16 * half;
        const size_t skipped = own.from > first ? own.from - first : 0;
        const size_t count = own.to > first ? own.to - first : 0;
        some[half] = zero();
        if (skipped >= 16 || count == 0) continue;
        some[half] = weights_of(add(mul(load(from + first), factor), top));
        // Unseen scores are -inf, whose weights are numbers if the row's are.
        if (skipped > 0) some[half] = mul(some[half], load(kOnesBetween + 16 - skipped));
        if (count < 16) some[half] = mul(some[half], load(kOnesBetween + 32 - count));
      }
      total = add(add(total, some[0]), some[1]);
      Products::put_weights(some, lane, key, weights);
    };
    size_t key = pages.begin * kPageTokens / kBlock * kBlock;
    for (; key < own.from; key += kBlock) cut(key);
    for (; key + kBlock <= own.to; key += kBlock) {
      const Vec some[2] = {weights_of(add(mul(load(from + key), factor), top)),
                           weights_of(add(mul(load(from + key + 16), factor), top))};
      total = add(add(total, some[0]), some[1]);
      Products::put_weights(some, lane, key, weights);
    }
    for (; key < pages.end * kPageTokens; key += kBlock) cut(key);
    rows[lane] = total;
  }
  store(split.sum, sums(rows));
}

// Joins a split to those before it, for the lanes that see it: total [lanes, n] += part [lanes, n].
inline void merge_pages(const MergedLanes& split, const SeenSplit& seen, size_t head_rows,
                        const float* part, size_t n, size_t lanes, float* total, MergedLanes& all) {
  using glsl::SPLIT_ISA::small_f;
  const Vec largest[2] = {load(all.largest), load(split.largest)};
  const Vec minus_both = mul(max(largest[0], largest[1]), broadcast(-1.0f));
  float factors[2][kAttendRows];
  for (size_t i = 0; i < 2; ++i) store(factors[i], weights_of(add(largest[i], minus_both)));
  for (size_t lane = 0; lane < lanes; ++lane, total += n, part += n) {
    if (!seen.sees(lane % head_rows)) continue;
    if (seen.begins[lane % head_rows]) {
      for (size_t d = 0; d < n; ++d) total[d] = small_f(part[d]);
      all.largest[lane] = split.largest[lane], all.sum[lane] = split.sum[lane];
      continue;
    }
    const float before = factors[0][lane], now = factors[1][lane];
    for (size_t d = 0; d < n; ++d) {
      total[d] = small_f(total[d]) * before + small_f(part[d]) * now;
    }
    all.largest[lane] = glsl::max(all.largest[lane], split.largest[lane]);
    all.sum[lane] = all.sum[lane] * before + split.sum[lane] * now;
  }
}

// The pages of a task's heads.
template <typename Products>
inline const std::byte* heads_of(const AttendTask& task, const std::byte* all, size_t page) {
  constexpr DType kType = Products::kType;
  return all + kPageTokens * (task.pages[page] * kv_bytes(kType, task.kv_width) +
                              kv_bytes(kType, task.head_offset));
}

// Whether a weight of zero can hide unseen tokens: values that only some rows see are numbers.
template <typename Products>
inline bool hides_by_zero(const AttendTask& task, size_t head_bytes, std::byte* scratch) {
  const KeyRange& earliest = task.seen[0];
  const KeyRange& latest = task.seen[task.rows - 1];
  const auto are_numbers = [&](size_t from, size_t to) {
    for (size_t page = from / kPageTokens; from < to && page * kPageTokens < to; ++page) {
      const size_t first = page * kPageTokens;
      if (!all_finite(heads_of<Products>(task, task.values, page), task.heads * head_bytes,
                      earliest.first > first ? earliest.first - first : 0, latest.end - first,
                      scratch)) {
        return false;
      }
    }
    return true;
  };
  return Products::kType != DType::kBF16 || task.rows == 1 ||
         (are_numbers(earliest.first, latest.first) && are_numbers(earliest.end, latest.end));
}

// Takes heads by rows by their groups at most kAttendRows.
template <typename Products>
void attend_pages(const AttendTask& task) {
  const KeyRange& earliest = task.seen[0];
  const size_t head_size = task.head_size, end = task.seen[task.rows - 1].end;
  const size_t rows = queries_of(task), lanes = task.heads * rows;
  // Memory of attend_scratch().
  float* const rounded_q = task.scratch + kPageTokens * head_size;
  float* const part = rounded_q + kAttendRows * head_size;
  float* const total = part + kAttendRows * head_size;
  float* const scores = total + kAttendRows * head_size;
  auto* const weights = reinterpret_cast<std::byte*>(scores + kAttendRows * kSplitKeys);
  auto* const q = reinterpret_cast<std::byte*>(rounded_q);

  SplitPages pages;
  pages.heads = task.heads;
  pages.head_size = head_size;
  pages.head_bytes = kPageTokens * kv_bytes(Products::kType, head_size);
  pages.scratch = reinterpret_cast<std::byte*>(task.scratch);
  if (!hides_by_zero<Products>(task, pages.head_bytes, pages.scratch)) {
    AttendTask one = task;
    one.rows = 1;
    for (size_t row = 0; row < task.rows; ++row) {
      attend_pages<Products>(one);
      ++one.seen;
      one.q += task.q_stride;
      one.out += task.out_stride;
      if (one.bias != nullptr) --one.bias;
    }
    return;
  }

  const Products products(rows);
  for_each_lane(task, [&](size_t lane, size_t from, size_t) {
    Products::round(task.q + from, head_size, lane, q);
  });
  MergedLanes merged = {};
  for (size_t first = earliest.first / kSplitKeys * kSplitKeys; first < end; first += kSplitKeys) {
    const SeenSplit seen(task, first);
    if (seen.empty()) continue;
    pages.from = seen.from();
    pages.to = seen.to();
    pages.begin = pages.from / kPageTokens;
    pages.end = (pages.to + kPageTokens - 1) / kPageTokens;
    for (size_t i = pages.begin; i < pages.end; ++i) {
      pages.keys[i] = heads_of<Products>(task, task.keys, first / kPageTokens + i);
      pages.values[i] = heads_of<Products>(task, task.values, first / kPageTokens + i);
    }
    products.score(q, rows, pages, scores);
    MergedLanes split = {};
    if (task.bias != nullptr) add_bias(task, first, seen, task.scale, scores);
    weigh_pages<Products>(scores, weights, task.bias != nullptr ? 1.0f : task.scale, task.cap, seen,
                          rows, lanes, pages, split);
    // Scores have been read: their memory is scratch.
    auto* const scratch = reinterpret_cast<std::byte*>(scores);
    if (seen.first_of_all()) {
      products.add(weights, rows, pages, scratch, total);
      for (size_t i = 0; i < lanes * head_size; ++i) total[i] = glsl::SPLIT_ISA::small_f(total[i]);
      merged = split;
    } else {
      products.add(weights, rows, pages, scratch, part);
      merge_pages(split, seen, rows, part, head_size, lanes, total, merged);
    }
  }
  for_each_lane(task, [&](size_t lane, size_t, size_t to) {
    const float* const from = total + lane * head_size;
    const float inverse = glsl::SPLIT_ISA::near_recip_f(merged.sum[lane]);
    for (size_t d = 0; d < head_size; ++d) {
      task.out[to + d] = glsl::SPLIT_ISA::clean_f(from[d] * inverse);
    }
  });
}

// Calls attend(task) for at most `most` heads at a time, with kAttendRows queries at most: a larger
// group is cut.
template <typename Attend>
void attend_heads(const AttendTask& task, size_t most, const Attend& attend) {
  const size_t group = task.group < kAttendRows ? task.group : kAttendRows;
  const size_t room = group < task.group ? 1 : kAttendRows / (task.rows * group);
  const size_t each = room < most ? room : most;
  for (size_t head = 0; head < task.heads; head += each) {
    for (size_t i = 0; i < task.group; i += group) {
      AttendTask some = task;
      some.heads = task.heads - head < each ? task.heads - head : each;
      some.group = task.group - i < group ? task.group - i : group;
      some.head_offset += head * task.head_size;
      some.q += (head * task.group + i) * task.head_size;
      some.out += (head * task.group + i) * task.head_size;
      if (some.bias != nullptr) some.bias += (head * task.group + i) * task.bias_stride;
      attend(some);
    }
  }
}

template <DType dtype>
void attend_rounded_of(const AttendTask& task) {
  [[maybe_unused]] const FlushDenormals flush;
#if defined(__AMX_BF16__)
  constexpr size_t kRowsOfTiles = 3;  // fewer do not pay for the set-up
  if (queries_of(task) >= kRowsOfTiles) return attend_heads(task, 1, attend_pages<ByTiles<dtype>>);
#endif
  // A page's heads one after another, in its order.
  attend_heads(task, kAttendRows, attend_pages<ByRows<dtype>>);
}

void attend_rounded(const AttendTask& task) {
  task.dtype == DType::kQ8_0 ? attend_rounded_of<DType::kQ8_0>(task)
                             : attend_rounded_of<DType::kBF16>(task);
}

}  // namespace
}  // namespace split::SPLIT_ISA
