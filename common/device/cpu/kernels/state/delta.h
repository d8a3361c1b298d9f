// The two steps of gated DeltaNet that read earlier rows: the causal convolution, and the delta
// rule, anchored at pages (state_shape.h). A row's bits depend on its position and its text alone,
// however rows are cut into calls. For kernels.cpp only, which is compiled once for each
// instruction set; by exact.h's rule each set has the same bits.
//
// Orders: a sum over taps, over channels of a key, or over rows of a page is one chain, upwards
// from +0 or from what is named first. The sum of a head's squares is a tree: i and i + 128, then +
// 64, down to + 1, with zeros behind the head.
#pragma once

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/state/exact.h"
#include "device/cpu/kernels/state/strip.h"

namespace split::SPLIT_ISA {
namespace {

void conv_rows(const ConvTask& task) {
  const StateShape& shape = task.shape;
  const size_t width = shape.width(), ring = shape.taken_rows();
  float* const taken = task.state + shape.taken();
  float sums[kConvColumns];
  for (size_t row = 0; row < task.rows; ++row) {
    const size_t position = task.position + row;
    const float* const x = task.x + row * task.x_stride;
    float* const y = task.y + row * task.y_stride;
    float* const own = taken + position % ring * width + task.first;
    for (size_t c = 0; c < task.columns; ++c) own[c] = exact::small(x[c]);
    for (size_t c = 0; c < task.columns; ++c) sums[c] = 0;
    for (size_t tap = 0; tap < shape.taps; ++tap) {
      if (position + tap + 1 < shape.taps) continue;  // zeros before the text
      const size_t from = position + tap + 1 - shape.taps;
      const float* const before = taken + from % ring * width + task.first;
      const float* const w = task.w + tap * width + task.first;
      for (size_t c = 0; c < task.columns; ++c) {
        sums[c] = sums[c] + exact::small(w[c]) * before[c];
      }
    }
    for (size_t c = 0; c < task.columns; ++c) y[c] = exact::clean(exact::silu_x(sums[c]));
  }
}

// The rows of one page that a call computes, for one key head.
struct DeltaPage {
  size_t first, end;  // rows of the page
  const float* q;     // [kPageTokens][key_dim], normed
  const float* k;
  // Products of a row's key and query with the keys of the page's rows.
  float key_dots[kPageTokens][kPageTokens], query_dots[kPageTokens][kPageTokens];
};

// x / sqrt(sum x^2 + 1e-6) * scale of one head.
inline void norm_to(const float* x, size_t n, float scale, float* to) {
  float squares[kMostStateDim] = {};
  for (size_t i = 0; i < n; ++i) {
    const float z = exact::small(x[i]);
    squares[i] = z * z;
  }
  for (size_t half = kMostStateDim / 2; half > 0; half /= 2) {
    if (half >= n) continue;  // adds zeros
    for (size_t i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  const float factor = exact::rsqrt_x(squares[0] + 1e-6f);
  for (size_t i = 0; i < n; ++i) {
    to[i] = exact::small((exact::small(x[i]) * factor) * scale);
  }
}

// Strips side by side that go through S together, as many as leave all sums in registers: few rows
// are bound by how fast S is read.
inline constexpr size_t kWide = kNative == 16 ? 4 : kNative == 8 ? 2 : 1;

// Sums of W strips of S times each of N vectors of key_dim numbers, strip after strip of a vector.
template <size_t N, size_t W>
inline void state_sums(const float* s, size_t stride, size_t key_dim, const float* const* x,
                       Strip (*sums)[W]) {
  constexpr size_t kAll = W * Strip::kParts, kAhead = 8;  // rows that are asked for before
  Native all[N][kAll] = {};
  for (size_t d = 0; d < key_dim; ++d) {
    const float* const row = s + d * stride;
#pragma GCC unroll 16
    for (size_t i = 0; i < kAll; ++i) {
      if (i * kNative % 16 == 0) __builtin_prefetch(row + kAhead * stride + i * kNative);
      Native part;
      __builtin_memcpy(&part, row + i * kNative, sizeof(Native));
      part = lanes_at_least(part, exact::kSmall);
#pragma GCC unroll 4
      for (size_t n = 0; n < N; ++n) all[n][i] = all[n][i] + x[n][d] * part;
    }
  }
  for (size_t n = 0; n < N; ++n) {
    for (size_t i = 0; i < kAll; ++i) {
      sums[n][i / Strip::kParts].v[i % Strip::kParts] = lanes_at_least(all[n][i], exact::kSmall);
    }
  }
}

// A value head's numbers of the rows of a page.
struct DeltaHead {
  float decay[kPageTokens];  // e^G
  float beta[kPageTokens];
  float by_key[kPageTokens][kPageTokens];  // e^(G_i - G_l) times the dots above
  float by_query[kPageTokens][kPageTokens];
};

// e^(G_i - G_l) of the rows l up to i of a page.
inline Strip decays_since(const float* g, size_t i) {
  float since[kPageTokens];
  for (size_t l = 0; l < kPageTokens; ++l) since[l] = l < i ? g[i] - g[l] : 0.0f;
  return Strip::load(since).exp().small();
}

void weigh_rows(const DeltaTask& task, const DeltaPage& page, size_t head, size_t row, float* g,
                DeltaHead& own) {
  const size_t heads = task.shape.value_heads;
  for (size_t i = page.first; i < page.end; ++i) {
    const size_t at = (row + i - page.first) * heads + head;
    const float step = exact::softplus_x(task.a[at] + task.dt_bias[head]);
    g[i] = (i == 0 ? 0.0f : g[i - 1]) + exact::clean(task.decay[head] * step);
    own.beta[i] = exact::small(exact::sigmoid_x(task.b[at]));
    own.decay[i] = exact::small(exact::exp_x(g[i]));
    const Strip since = decays_since(g, i);
    since.times(Strip::load(page.key_dots[i])).small().store(own.by_key[i]);
    since.times(Strip::load(page.query_dots[i])).small().store(own.by_query[i]);
  }
}

// W strips of a value head's columns, from `at` on: `values` are its v, then its results, as rows
// of value_room.
template <size_t W>
void delta_columns(const StateShape& shape, const DeltaPage& page, const DeltaHead& own, size_t at,
                   const float* s, float* next, const float* keys, const float* g, float* deltas,
                   float* values) {
  const size_t room = shape.value_room(), dim = shape.key_dim;
  Strip sums[2 * kPageTokens][W];
  const float* x[2 * kPageTokens];
  const size_t count = 2 * (page.end - page.first);
  for (size_t i = page.first, n = 0; i < page.end; ++i, n += 2) {
    x[n] = page.k + i * dim, x[n + 1] = page.q + i * dim;
  }
  size_t n = 0;
  for (; n + 4 <= count; n += 4) state_sums<4, W>(s + at, room, dim, x + n, sums + n);
  if (n < count) state_sums<2, W>(s + at, room, dim, x + n, sums + n);
  for (size_t w = 0; w < W; ++w) {
    const size_t column = at + 16 * w;
    for (size_t i = page.first; i < page.end; ++i) {
      const size_t own_sums = 2 * (i - page.first);
      float* const value = values + (i - page.first) * room + column;
      Strip seen = sums[own_sums][w].times(own.decay[i]);
      Strip out = sums[own_sums + 1][w].times(own.decay[i]);
      for (size_t l = 0; l < i; ++l) {
        const Strip delta = Strip::load(deltas + l * room + column);
        seen.add(own.by_key[i][l], delta);
        out.add(own.by_query[i][l], delta);
      }
      Strip rest = Strip::load(value).small();
      for (size_t part = 0; part < Strip::kParts; ++part) rest.v[part] -= seen.v[part];
      const Strip delta = rest.small().times(own.beta[i]).small();
      delta.store(deltas + i * room + column);
      out.add(own.by_query[i][i], delta);
      out.clean().store(value);
    }
  }
  if (page.end < kPageTokens) return;
  float since[kPageTokens];
  decays_since(g, kPageTokens - 1).store(since);
  const float left = own.decay[kPageTokens - 1];
  for (size_t w = 0; w < W; ++w) {
    const size_t column = at + 16 * w;
    Strip scaled[kPageTokens];
    for (size_t l = 0; l < kPageTokens; ++l) {
      scaled[l] = Strip::load(deltas + l * room + column).times(since[l]).small();
    }
    for (size_t d = 0; d < dim; ++d) {
      Strip sum = Strip::load(s + d * room + column).small().times(left);
      for (size_t l = 0; l < kPageTokens; ++l) sum.add(keys[d * kPageTokens + l], scaled[l]);
      sum.clean().store(next + d * room + column);
    }
  }
}

void delta_page(const DeltaTask& task, size_t row, size_t rows) {
  const StateShape& shape = task.shape;
  const size_t position = task.position + row, half = position / kPageTokens % 2;
  const size_t dim = shape.key_dim, values = shape.value_dim, room = shape.value_room();
  float* const q = task.scratch;
  float* const k = q + kPageTokens * dim;
  float* const v = k + kPageTokens * dim;
  float* const keys = task.state + shape.keys(half) + task.head * dim * kPageTokens;
  DeltaPage page;
  page.first = position % kPageTokens;
  page.end = page.first + rows;
  page.q = q, page.k = k;
  for (size_t i = page.first; i < page.end; ++i) {
    const float* const from = task.x + (row + i - page.first) * task.x_stride + task.head * dim;
    norm_to(from, dim, task.scale, q + i * dim);
    norm_to(from + shape.key_heads * dim, dim, 1.0f, k + i * dim);
    for (size_t d = 0; d < dim; ++d) keys[d * kPageTokens + i] = k[i * dim + d];
  }
  // Lanes are rows of the page; those of rows to come have no meaning, and are not read.
  for (size_t i = page.first; i < page.end; ++i) {
    Strip by_key = {}, by_query = {};
    for (size_t d = 0; d < dim; ++d) {
      const Strip all = Strip::load(keys + d * kPageTokens);
      by_key.add(k[i * dim + d], all);
      by_query.add(q[i * dim + d], all);
    }
    by_key.small().store(page.key_dots[i]);
    by_query.small().store(page.query_dots[i]);
  }
  for (size_t n = 0; n < shape.group(); ++n) {
    const size_t head = shape.value_head(task.head, n);
    float* const g = task.state + shape.decays(half) + head * kPageTokens;
    float* const deltas = task.state + shape.deltas(half) + head * kPageTokens * room;
    float* const s = task.state + shape.anchors(half) + head * dim * room;
    if (position == 0) {  // a text begins with zeros
      for (size_t i = 0; i < dim * room; ++i) s[i] = 0;
    }
    float* const next = task.state + shape.anchors(1 - half) + head * dim * room;
    DeltaHead own;
    weigh_rows(task, page, head, row, g, own);
    const size_t column = 2 * shape.key_heads * dim + head * values;
    for (size_t i = 0; i < rows; ++i) {
      const float* const from = task.x + (row + i) * task.x_stride + column;
      for (size_t c = 0; c < room; ++c) v[i * room + c] = c < values ? from[c] : 0.0f;
    }
    size_t at = 0;
    for (; at + 16 * kWide <= room; at += 16 * kWide) {
      delta_columns<kWide>(shape, page, own, at, s, next, keys, g, deltas, v);
    }
    for (; at < room; at += 16) {
      delta_columns<1>(shape, page, own, at, s, next, keys, g, deltas, v);
    }
    for (size_t i = 0; i < rows; ++i) {
      float* const to = task.y + (row + i) * task.y_stride + head * values;
      for (size_t c = 0; c < values; ++c) to[c] = v[i * room + c];
    }
  }
}

void decays(const float* a_log, size_t heads, float* to) {
  for (size_t head = 0; head < heads; ++head) to[head] = -exact::exp_x(a_log[head]);
}

void delta(const DeltaTask& task) {
  for (size_t row = 0; row < task.rows;) {
    const size_t left = kPageTokens - (task.position + row) % kPageTokens;
    const size_t rows = task.rows - row < left ? task.rows - row : left;
    delta_page(task, row, rows);
    row += rows;
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
