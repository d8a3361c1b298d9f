// Attention of some rows of one head over the pages of their sequence, in floats or halves. For
// kernels.cpp only, which is compiled once for each instruction set.
//
// A key or value is widened once for all rows. Each score is 16 chains and a tree; a split's result
// is one chain over its keys; splits are merged in order: the same for any number of rows.
#pragma once

#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kKeysAtOnce = 16;
constexpr size_t kRowsOfValues = 4;  // whose sums the registers hold
static_assert(kKeysAtOnce == kPageTokens);

// sum() of each of sixteen Vecs, and the largest number of each.
#if defined(__AVX512F__)
template <typename Join>
inline Vec folded(const Vec* v, const Join& join) {
  __m512 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {
    const __m512 a = v[i].v, b = v[i + 8].v;
    eight[i] = join(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[i], b = eight[i + 4];
    four[i] = join(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512 a = four[i], b = four[i + 2];
    two[i] = join(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const __m512 one =
      join(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
  // A quarter has the Vecs 0, 2, 1, 3 of four that are 4, 8 apart.
  return {_mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15), one)};
}
inline Vec sums(const Vec* v) {
  return folded(v, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
inline Vec maxima(const Vec* v) {
  return folded(v, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}
#else
inline Vec sums(const Vec* v) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = sum(v[i]);
  return load(lanes);
}
inline Vec maxima(const Vec* v) {
  float largest[16];
  for (int i = 0; i < 16; ++i) {
    float lanes[16];
    store(lanes, v[i]);
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes[j] = glsl::max(lanes[j], lanes[j + half]);
    }
    largest[i] = lanes[0];
  }
  return load(largest);
}
#endif

// Sixteen keys or values of a head in a page, or the first of them as floats.
struct Keys {
  const std::byte* data;
  size_t stride;  // bytes from one to the next
};
template <DType dtype>
inline Keys keys_at(const AttendTask& task, const std::byte* pages, size_t first) {
  const size_t channels = task.pages[first / kPageTokens] * task.channels + task.head_offset;
  return {pages + kPageTokens * kv_bytes(dtype, channels), kv_bytes(dtype, task.head_size)};
}

// The first `count` of them as floats [kKeysAtOnce, padded], zeros behind all.
template <DType dtype>
inline Keys widened(const AttendTask& task, Keys keys, size_t count, size_t padded, float* to) {
  const Keys result{reinterpret_cast<const std::byte*>(to), padded * sizeof(float)};
  for (size_t key = 0; key < count; ++key, keys.data += keys.stride, to += padded) {
    constexpr size_t kSize = size_of(dtype);
    const size_t whole = task.head_size / 16 * 16;
    for (size_t d = 0; d < whole; d += 16) store(to + d, load_as<dtype>(keys.data + d * kSize));
    if (whole < padded) {
      store(to + whole, load_as<dtype>(keys.data + whole * kSize, task.head_size - whole));
    }
  }
  for (size_t i = count; i < kKeysAtOnce; ++i, to += padded) {
    for (size_t d = 0; d < padded; d += 16) store(to + d, zero());
  }
  return result;
}

// Asks for some: pages are read in stripes, which no hardware prefetcher follows.
template <DType dtype>
inline void prefetch(const AttendTask& task, Keys keys, size_t count) {
  for (size_t key = 0; key < count; ++key, keys.data += keys.stride) {
    for (size_t line = 0; line < kv_bytes(dtype, task.head_size); line += 64) {
      __builtin_prefetch(keys.data + line);
    }
  }
}

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

// Of one row: of a split, or of those so far, scaled to the largest score.
struct Merged {
  float largest, sum;
};
// The weights of the first `seen` scores of a split. Writes whole Vecs.
inline void weigh(float* scores, float* weights, size_t seen, Merged& split) {
  glsl::SPLIT_ISA::reduce_max(scores, 0, 1, seen, &split.largest);
  // What is not seen is not summed.
  const size_t count = (seen + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  const float largest = split.largest;
  for (size_t key = 0; key < count; ++key) scores[key] -= largest;
  glsl::SPLIT_ISA::unary_exp(scores, weights, count);
  glsl::SPLIT_ISA::reduce_sum(weights, 0, 1, seen, &split.sum);
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

// Known: the head size, or 0.
template <DType dtype, size_t Known>
void attend_typed(const AttendTask& task) {
  const size_t padded = Known > 0 ? Known : (task.head_size + 15) / 16 * 16;
  const Vec scale = broadcast(task.scale);
  // Of attend_scratch().
  float* const keys = task.scratch;
  float* const q = keys + kKeysAtOnce * padded;
  float* const part = q + kAttendRows * padded;
  float* const total = part + kAttendRows * padded;
  float* const scores = total + kAttendRows * padded;
  float* const weights = scores + kAttendRows * kSplitKeys;
  Merged merged[kAttendRows];
  for (size_t r = 0; r < task.rows; ++r) {
    for (size_t d = 0; d < padded; ++d) {
      q[r * padded + d] = d < task.head_size ? task.q[r * task.q_stride + d] : 0;
    }
  }
  const size_t end = task.position + task.rows;  // of the keys
  // One row reads floats where they lie.
  const bool alone = task.rows == 1 && task.head_size == padded;
  for (size_t first = 0; first < end; first += kSplitKeys) {
    const size_t most = end - first < kSplitKeys ? end - first : kSplitKeys;
    // The first row that sees the split, and how many of its keys a row sees.
    const size_t row0 = first > task.position ? first - task.position : 0;
    const auto seen = [&](size_t r) {
      const size_t count = task.position + r + 1 - first;
      return count < most ? count : most;
    };
    for (size_t key = 0; key < most; key += kKeysAtOnce) {
      const size_t count = most - key < kKeysAtOnce ? most - key : kKeysAtOnce;
      const Keys stored = keys_at<dtype>(task, task.keys, first + key);
      // The next keys but one, and what the weights will want.
      const size_t next = first + key + 2 * kKeysAtOnce;
      if (next < end) prefetch<dtype>(task, keys_at<dtype>(task, task.keys, next), kKeysAtOnce);
      prefetch<dtype>(task, keys_at<dtype>(task, task.values, first + key), count);
      const auto finish = [&](size_t r, Vec dots) {
        store(scores + r * kSplitKeys + key, mul(dots, scale));
      };
      if (alone && count == kKeysAtOnce) {
        finish(0, score<dtype>(q, stored, padded));
        continue;
      }
      const Keys wide = widened<dtype>(task, stored, count, padded, keys);
      for (size_t r = row0; r < task.rows; ++r) {
        finish(r, score<DType::kF32>(q + r * padded, wide, padded));
      }
    }
    Merged split[kAttendRows];
    for (size_t r = row0; r < task.rows; ++r) {
      weigh(scores + r * kSplitKeys, weights + r * kSplitKeys, seen(r), split[r]);
    }
    float* const out = first == 0 ? total : part;
    for (size_t i = row0 * padded; i < task.rows * padded; ++i) out[i] = 0;
    for (size_t key = 0; key < most; key += kKeysAtOnce) {
      const size_t count = most - key < kKeysAtOnce ? most - key : kKeysAtOnce;
      const Keys stored = keys_at<dtype>(task, task.values, first + key);
      if (alone && count == kKeysAtOnce) {
        add_values<dtype, 1>(weights + key, stored, count, padded, out);
        continue;
      }
      const Keys wide = widened<dtype>(task, stored, count, padded, keys);
      size_t r = row0;
      while (r < task.rows && seen(r) <= key) ++r;  // these see none of them
      for (; r < task.rows; ++r) {
        const float* const w = weights + r * kSplitKeys + key;
        float* const to = out + r * padded;
        if (r + kRowsOfValues <= task.rows && seen(r) >= key + count) {
          add_values<DType::kF32, kRowsOfValues>(w, wide, count, padded, to);
          r += kRowsOfValues - 1;
          continue;
        }
        add_values<DType::kF32, 1>(w, wide, seen(r) - key < count ? seen(r) - key : count, padded,
                                   to);
      }
    }
    for (size_t r = row0; r < task.rows; ++r) {
      if (first == 0) {
        merged[r] = split[r];
      } else {
        merge(split[r], part + r * padded, padded, total + r * padded, merged[r]);
      }
    }
  }
  for (size_t r = 0; r < task.rows; ++r) {
    float* const out = task.out + r * task.out_stride;
    for (size_t d = 0; d < task.head_size; ++d) out[d] = total[r * padded + d] / merged[r].sum;
  }
}

template <DType dtype>
void attend_of(const AttendTask& task) {
  // 64: of every GPT-2.
  task.head_size == 64 ? attend_typed<dtype, 64>(task) : attend_typed<dtype, 0>(task);
}

}  // namespace
}  // namespace split::SPLIT_ISA
