// Attention of some rows of one head over the pages of their sequence, in floats or halves. For
// kernels.cpp only, which is compiled once for each instruction set.
//
// Widens a key or value once for all rows. Each score is 16 chains and a tree; a split's result is
// one chain over its keys; splits are merged in order: equal for any number of rows.
#pragma once

#include "device/cpu/kernels/fold16.h"
#include "device/cpu/kernels/ops.h"
#include "device/cpu/kernels/seen_keys.h"
#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kRowsOfValues = 4;  // rows with sums in registers

// The scores of one query and sixteen keys.
template <DType dtype>
[[gnu::always_inline]] inline Vec score(const float* q, Keys keys, size_t padded) {
  Vec dots[kKeysAtOnce];
  for (Vec& dot : dots) dot = zero();
  for (size_t d = 0; d < padded; d += 16) {
    const Vec values = load(q + d);
#pragma GCC unroll 16
    for (size_t key = 0; key < kKeysAtOnce; ++key) {
      dots[key] = fma(values, load_as<dtype>(keys.data + key * keys.stride + d * size_of(dtype)),
                      dots[key]);
    }
  }
  return sums(dots);
}

// out [Rows, padded] += weights [Rows, count] values.
template <DType dtype, size_t Rows>
[[gnu::always_inline]] inline void add_values(const float* weights, Keys values, size_t count,
                                              size_t padded, float* out) {
#if defined(__AVX512F__)
  constexpr size_t kVecs = 4;
#else
  constexpr size_t kVecs = 1;
#endif
  const auto columns = [&]<size_t Vecs>(size_t d) {
    Vec totals[Rows][Vecs];
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t v = 0; v < Vecs; ++v) totals[r][v] = load(out + r * padded + d + 16 * v);
    }
    const std::byte* from = values.data + d * size_of(dtype);
    for (size_t key = 0; key < count; ++key, from += values.stride) {
      Vec value[Vecs];
      for (size_t v = 0; v < Vecs; ++v) value[v] = load_as<dtype>(from + 16 * v * size_of(dtype));
      for (size_t r = 0; r < Rows; ++r) {
        const Vec weight = broadcast(weights[r * kSplitKeys + key]);
        for (size_t v = 0; v < Vecs; ++v) totals[r][v] = fma(weight, value[v], totals[r][v]);
      }
    }
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t v = 0; v < Vecs; ++v) store(out + r * padded + d + 16 * v, totals[r][v]);
    }
  };
  size_t d = 0;
  for (; d + 16 * kVecs <= padded; d += 16 * kVecs) columns.template operator()<kVecs>(d);
  for (; d < padded; d += 16) columns.template operator()<1>(d);
}

// Scores of a split, whose first key is `first`, of the queries that see it: scale * score + bias.
inline void add_bias(const AttendTask& task, size_t first, const SeenSplit& seen, float scale,
                     float* scores) {
  for_each_lane(task, [&](size_t lane, size_t, size_t) {
    const size_t query = lane % queries_of(task), head = lane / queries_of(task) * task.group;
    if (!seen.sees(query)) return;
    const size_t row = query / task.group;
    const float* const bias =
        task.bias + (head + query % task.group) * task.bias_stride + first - row;
    float* const own = scores + lane * kSplitKeys;
    for (size_t key = seen.keys[query].from / 16 * 16; key < seen.keys[query].to; key += 16) {
      store(own + key, add(mul(load(own + key), broadcast(scale)), load(bias + key)));
    }
  });
}

// The result of one row: a split's, or all splits' so far, scaled to the largest score.
struct Merged {
  float largest, sum;
};
// Caps the scores [begin, end), whole Vecs of a split: cap * tanh(scale * score / cap).
inline void cap_scores(float* scores, size_t begin, size_t end, float scale, float cap) {
  float small[kSplitKeys], bounded[kSplitKeys];
  const float factor = scale / cap;
  for (size_t key = begin; key < end; ++key) small[key] = scores[key] * factor;
  glsl::SPLIT_ISA::unary_tanh(small + begin, bounded + begin, end - begin);
  for (size_t key = begin; key < end; ++key) scores[key] = bounded[key] * cap;
}

// Makes the weights of the scores of a split that a row sees. Writes whole Vecs.
inline void weigh(float* scores, float* weights, const SeenKeys& seen, float cap, Merged& split) {
  const size_t count = seen.to - seen.from;
  // Unseen keys are not summed.
  const size_t begin = seen.from / kKeysAtOnce * kKeysAtOnce;
  const size_t end = (seen.to + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  if (cap > 0) cap_scores(scores, begin, end, 1.0f, cap);
  glsl::SPLIT_ISA::reduce_max(scores + seen.from, 0, 1, count, &split.largest);
  const float largest = split.largest;
  for (size_t key = begin; key < end; ++key) scores[key] -= largest;
  glsl::SPLIT_ISA::unary_exp(scores + begin, weights + begin, end - begin);
  glsl::SPLIT_ISA::reduce_sum(weights + seen.from, 0, 1, count, &split.sum);
}

// Adds a split that is not the first: total [n] += part [n].
inline void merge(const Merged& split, const float* part, size_t n, float* total, Merged& all) {
  const float both = glsl::max(all.largest, split.largest);
  const float differences[2] = {all.largest - both, split.largest - both};
  float factors[2];
  glsl::SPLIT_ISA::unary_exp(differences, factors, 2);
  for (size_t d = 0; d < n; ++d) total[d] = total[d] * factors[0] + part[d] * factors[1];
  all = {both, all.sum * factors[0] + split.sum * factors[1]};
}

// A task's sizes, and the parts of its attend_scratch(). Lanes are the queries of heads.
struct Lanes {
  Lanes(const AttendTask& task, size_t size)
      : padded((size + 15) / 16 * 16), rows(queries_of(task)), heads(task.heads) {
    keys = task.scratch;
    q = keys + kKeysAtOnce * padded;
    part = q + kAttendRows * padded;
    total = part + kAttendRows * padded;
    scores = total + kAttendRows * padded;
    weights = scores + kAttendRows * kSplitKeys;
  }
  size_t count() const { return heads * rows; }

  size_t padded, rows, heads;
  float *keys, *q, *part, *total, *scores, *weights;
};

// Calls each(key, count, head, keys or values) for the seen ones of a split, and prefetches the
// next; behind the last, `then`.
template <DType dtype>
[[gnu::always_inline]] inline void each_page(const AttendTask& task, size_t first,
                                             const SeenSplit& seen, size_t head_bytes,
                                             const std::byte* pages, const std::byte* then,
                                             size_t then_first, const auto& each) {
  const size_t end = task.seen[task.rows - 1].end;
  const size_t least = seen.from() / kKeysAtOnce * kKeysAtOnce, most = seen.to();
  for (size_t key = least; key < most; key += kKeysAtOnce) {
    const size_t count = most - key < kKeysAtOnce ? most - key : kKeysAtOnce;
    for (size_t head = 0; head < task.heads; ++head) {
      const size_t next_head = head + 1 < task.heads ? head + 1 : 0;
      const size_t next = next_head > 0 ? key : key + kKeysAtOnce;
      if (next < most) {
        fetch(keys_at<dtype>(task, pages, first + next, next_head).data, head_bytes);
      } else if (then_first < end) {
        fetch(keys_at<dtype>(task, then, then_first, 0).data, head_bytes);
      }
      each(key, count, head, keys_at<dtype>(task, pages, first + key, head));
    }
  }
}

// Adds the weighted values of a head's `count` keys from `key` on, as floats, to the sums of the
// rows that see them.
[[gnu::always_inline]] inline void add_rows(const Lanes& lanes, const SeenSplit& seen, size_t key,
                                            size_t count, const Keys& wide, const float* weights,
                                            float* sums) {
  const size_t padded = lanes.padded;
  // Rows before r and from `last` on see none of them.
  size_t r = seen.row0, last = seen.row1;
  while (r < last && seen.keys[r].to <= key) ++r;
  while (last > r && seen.keys[last - 1].from >= key + count) --last;
  for (; r < last; ++r) {
    const size_t from = seen.keys[r].from, to = seen.keys[r].to;
    if (r + kRowsOfValues <= last && to >= key + count &&
        seen.keys[r + kRowsOfValues - 1].from <= key) {
      add_values<DType::kF32, kRowsOfValues>(weights + r * kSplitKeys, wide, count, padded,
                                             sums + r * padded);
      r += kRowsOfValues - 1;
      continue;
    }
    const size_t skipped = from > key ? from - key : 0;
    const size_t stop = to - key < count ? to - key : count;
    add_values<DType::kF32, 1>(weights + r * kSplitKeys + skipped,
                               {wide.data + skipped * wide.stride, wide.stride}, stop - skipped,
                               padded, sums + r * padded);
  }
}

// Joins a split to those before it, for the lanes that see it. `out` has its sums, or `total` if it
// is the first split of all lanes.
[[gnu::always_inline]] inline void join_split(const Lanes& lanes, const SeenSplit& seen,
                                              const Merged* split, const float* out,
                                              Merged* merged) {
  for (size_t lane = 0; lane < lanes.count(); ++lane) {
    if (!seen.sees(lane % lanes.rows)) continue;
    float* const sums = lanes.total + lane * lanes.padded;
    const float* const part = lanes.part + lane * lanes.padded;
    if (!seen.begins[lane % lanes.rows]) {
      merge(split[lane], part, lanes.padded, sums, merged[lane]);
      continue;
    }
    merged[lane] = split[lane];
    for (size_t d = 0; out == lanes.part && d < lanes.padded; ++d) sums[d] = part[d];
  }
}

// Heads by rows by their groups at most kAttendRows; a page's heads one after another, in its
// order. Known: the head size, or 0.
template <DType dtype, size_t Known>
void attend_typed(const AttendTask& task) {
  const size_t head_size = Known > 0 ? Known : task.head_size;
  const Lanes lanes(task, head_size);
  const size_t padded = lanes.padded, rows = lanes.rows;
  const Vec scale = broadcast(task.scale);
  Merged merged[kAttendRows];
  for_each_lane(task, [&](size_t lane, size_t from, size_t) {
    float* const q = lanes.q + lane * padded;
    for (size_t d = 0; d < padded; ++d) q[d] = d < head_size ? task.q[from + d] : 0;
  });
  const size_t end = task.seen[task.rows - 1].end;
  const size_t head_bytes = kPageTokens * kv_bytes(dtype, head_size);
  // One row reads floats in place.
  const bool alone = rows == 1 && head_size == padded;
  size_t first = task.seen[0].first / kSplitKeys * kSplitKeys;
  for (; first < end; first += kSplitKeys) {
    const SeenSplit seen(task, first);
    if (seen.empty()) continue;
    const auto score_page = [&](size_t key, size_t count, size_t head, const Keys& stored) {
      const auto finish = [&](size_t lane, Vec dots) {
        store(lanes.scores + lane * kSplitKeys + key, mul(dots, scale));
      };
      if (alone && count == kKeysAtOnce) {
        return finish(head, score<dtype>(lanes.q + head * padded, stored, padded));
      }
      const Keys wide = widened<dtype>(task, stored, count, padded, lanes.keys);
      for (size_t lane = head * rows + seen.row0; lane < head * rows + seen.row1; ++lane) {
        finish(lane, score<DType::kF32>(lanes.q + lane * padded, wide, padded));
      }
    };
    each_page<dtype>(task, first, seen, head_bytes, task.keys, task.values,
                     first + seen.from() / kKeysAtOnce * kKeysAtOnce, score_page);
    if (task.bias != nullptr) add_bias(task, first, seen, 1.0f, lanes.scores);
    Merged split[kAttendRows];
    float* const out = seen.first_of_all() ? lanes.total : lanes.part;
    for (size_t lane = 0; lane < lanes.count(); ++lane) {
      if (!seen.sees(lane % rows)) continue;
      weigh(lanes.scores + lane * kSplitKeys, lanes.weights + lane * kSplitKeys,
            seen.keys[lane % rows], task.cap, split[lane]);
      for (size_t d = 0; d < padded; ++d) out[lane * padded + d] = 0;
    }
    const auto add_page = [&](size_t key, size_t count, size_t head, const Keys& stored) {
      const float* const weights = lanes.weights + head * rows * kSplitKeys + key;
      float* const sums = out + head * rows * padded;
      if (alone && count == kKeysAtOnce && seen.from() <= key) {
        return add_values<dtype, 1>(weights, stored, count, padded, sums);
      }
      const Keys wide = widened<dtype>(task, stored, count, padded, lanes.keys);
      add_rows(lanes, seen, key, count, wide, weights, sums);
    };
    each_page<dtype>(task, first, seen, head_bytes, task.values, task.keys, first + kSplitKeys,
                     add_page);
    join_split(lanes, seen, split, out, merged);
  }
  for_each_lane(task, [&](size_t lane, size_t, size_t to) {
    for (size_t d = 0; d < head_size; ++d) {
      task.out[to + d] = lanes.total[lane * padded + d] / merged[lane].sum;
    }
  });
}

template <DType dtype>
void attend_of(const AttendTask& task) {
  // 64 is the most usual size.
  task.head_size == 64 ? attend_typed<dtype, 64>(task) : attend_typed<dtype, 0>(task);
}

}  // namespace
}  // namespace split::SPLIT_ISA
