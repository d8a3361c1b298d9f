// exact1, the specification of the profile int8, in plain C++: every device has to give these bits.
// Single operations on floats are + - * rounded to nearest even; the functions are those of the op
// table. Compiled without contraction, like the kernels.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/kernels.h"
#include "support/cpu_kernels.h"
#include "tensor/blocks.h"

namespace split::test::exact {

namespace table {
using namespace split::glsl;  // NOLINT: the table's functions are GLSL
#define FUNC(type, name, parameters, ...) \
  [[maybe_unused]] static inline type name parameters __VA_ARGS__
#include "tensor/ops.def"
}  // namespace table

// FNV-1a.
inline uint64_t hash_of(std::span<const float> values, uint64_t hash = 0xcbf29ce484222325u) {
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

using Row = std::vector<RowStep>;

// A row in int8: blocks of 32, the last filled up with zeros. A number is x 127 / the block's
// largest magnitude, to nearest even.
inline Row rounded(std::span<const float> x) {
  Row row;
  for (size_t k = 0; k < x.size(); k += kBlock) {
    const auto block = x.subspan(k, std::min(kBlock, x.size() - k));
    RowStep step{};
    int largest = 0;
    for (const float v : block) largest = std::max(largest, glsl::floatBitsToInt(v) & 0x7fffffff);
    step.scale = table::block_scale_f(largest);
    for (size_t i = 0; i < block.size(); ++i) {
      const int q = table::block_number_f(block[i], table::block_inverse_f(largest));
      step.numbers[i] = static_cast<int8_t>(q);
      int16_t& sum = step.sums[i * kStepSums / kBlock];
      sum = static_cast<int16_t>(sum + q);
    }
    row.push_back(step);
  }
  return row;
}

// A block's part of a product: its whole numbers in any order, then a term, of Q4_K two.
inline void add_block(DType dtype, const std::byte* blocks, size_t b, const RowStep& row,
                      float& segment) {
  const auto dot = [&](size_t from, size_t to, const auto& number) {
    int sum = 0;
    for (size_t k = from; k < to; ++k) sum += row.numbers[k] * static_cast<int>(number(k));
    return static_cast<float>(sum);
  };
  constexpr size_t kHalf = kBlock / 2, kGroups = kSuperBlock / kBlock;
  if (dtype == DType::kQ4_K) {
    const GroupQ4K group = group_q4_k(blocks + b / kGroups * block_bytes(dtype), b % kGroups);
    const auto number = [&](size_t k) {
      return k < kHalf ? group.q[k] & 15 : group.q[k - kHalf] >> 4;
    };
    const float less = f16_to_f32(group.dmin) * static_cast<float>(group.minimum);
    const float scale = f16_to_f32(group.d) * static_cast<float>(group.scale);
    segment = segment + less * -(row.scale * dot(0, kBlock, [](size_t) { return 1; }));
    segment = segment + dot(0, kBlock, number) * (scale * row.scale);
  } else if (dtype == DType::kQ6_K) {
    const GroupQ6K group = group_q6_k(blocks + b / kGroups * block_bytes(dtype), b % kGroups);
    const auto number = [&](size_t k) { return group.q[k]; };
    const float sum = dot(0, kHalf, number) * static_cast<float>(group.scales[0]) +
                      dot(kHalf, kBlock, number) * static_cast<float>(group.scales[1]);
    segment = segment + sum * (f16_to_f32(group.d) * row.scale);
  } else {
    const std::byte* const block = blocks + b * block_bytes(dtype);
    const float sum = dot(0, kBlock, [&](size_t k) { return number_at(dtype, block, k); });
    segment = segment + sum * (scale_of(block) * row.scale);
  }
}

// A row times a column, in blocks: a chain of segments of 8 blocks, each a chain of its blocks.
inline float product(DType dtype, const std::byte* column, const Row& row, size_t segment = 8) {
  float total = 0;
  for (size_t b = 0; b < row.size();) {
    float part = 0;
    for (const size_t end = std::min(b + segment, row.size()); b < end; ++b) {
      add_block(dtype, column, b, row[b], part);
    }
    total = total + part;
  }
  return total;
}

// A row's sum: element i goes to chain i % 256; then chain c takes c + 128, c + 64, .. c + 1.
// `near`: neighbours first, which is a mistake.
inline float row_sum(std::span<const float> x, bool near = false) {
  float chains[256] = {};
  for (size_t i = 0; i < x.size(); ++i) chains[i % 256] = chains[i % 256] + x[i];
  for (size_t half = near ? 1 : 128; half > 0 && half < 256; half = near ? half * 2 : half / 2) {
    for (size_t c = 0; c + half < 256; c += near ? 2 * half : 1) {
      if (near || c < half) chains[c] = chains[c] + chains[c + half];
    }
  }
  return chains[0];
}

// A head of one row over keys and values [n][stride], which are bf16, as are q and the weights.
// Scores: of 32 channels a chain of the even and one of the odd, added; these in a chain. Splits of
// 128 keys: weights e^(score - the split's largest), summed by key % 16 and then a tree; values: of
// 16 keys a chain of the even and one of the odd, added; these in a chain. Splits are joined one by
// one, scaled to the largest so far.
inline std::vector<float> attended(std::span<const float> q, const float* keys, const float* values,
                                   size_t stride, size_t n, float scale) {
  const size_t size = q.size();
  std::vector<float> y(size), rounded_q(size);
  for (size_t d = 0; d < size; ++d) rounded_q[d] = table::bf16_f(q[d]);
  float largest = 0, sum = 0;
  for (size_t from = 0; from < n; from += kSplitKeys) {
    const size_t count = std::min<size_t>(kSplitKeys, n - from);
    float weights[kSplitKeys] = {}, top = 0, lanes[16] = {};
    for (size_t j = 0; j < count; ++j) {
      const float* const key = keys + (from + j) * stride;
      float score = 0;
      for (size_t step = 0; step < size; step += 32) {
        float even = 0, odd = 0;
        for (size_t d = step; d < step + 32; d += 2) {
          even = even + rounded_q[d] * key[d];
          odd = odd + rounded_q[d + 1] * key[d + 1];
        }
        score = score + (even + odd);
      }
      weights[j] = score * scale;
      top = j == 0 || weights[j] > top ? weights[j] : top;
    }
    for (size_t j = 0; j < count; ++j) {
      const float weight = table::weight_f(weights[j] - top);
      lanes[j % 16] = lanes[j % 16] + weight;
      weights[j] = table::bf16_f(weight);
    }
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    const float now = from == 0 || top > largest ? top : largest;
    const float before = from == 0 ? 0.0f : table::weight_f(largest - now);
    const float own = table::weight_f(top - now);
    for (size_t d = 0; d < size; ++d) {
      float part = 0;
      for (size_t page = 0; page < count; page += 16) {
        float even = 0, odd = 0;
        for (size_t j = page; j < std::min(page + 16, count); ++j) {
          float& chain = j % 2 == 0 ? even : odd;
          chain = chain + weights[j] * values[(from + j) * stride + d];
        }
        part = part + (even + odd);
      }
      y[d] = table::small_f(y[d]) * before + table::small_f(part) * own;
    }
    sum = sum * before + lanes[0] * own;
    largest = now;
  }
  const float inverse = table::near_recip_f(sum);
  for (float& v : y) v = table::clean_f(v * inverse);
  return y;
}

// x / sqrt(mean x^2 + eps) * weight.
inline std::vector<float> rms_norm(std::span<const float> x, std::span<const float> weight,
                                   float eps) {
  std::vector<float> squares(x.size()), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) squares[i] = x[i] * x[i];
  const float per_channel = 1.0f / static_cast<float>(x.size());
  const float factor = table::rsqrt_f(row_sum(squares) * per_channel + eps);
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] * factor) * weight[i];
  return y;
}

// Turns each head's pairs (i, i + half) by a row of tables.
inline void rotate(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  const size_t half = cos.size();
  for (size_t head = 0; head < x.size(); head += 2 * half) {
    for (size_t i = head; i < head + half; ++i) {
      const float a = x[i], b = x[i + half], c = cos[i - head], s = sin[i - head];
      x[i] = a * c - b * s;
      x[i + half] = b * c + a * s;
    }
  }
}

}  // namespace split::test::exact
