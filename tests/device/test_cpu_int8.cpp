// The CPU's products of rows rounded to blocks of int8.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/cpu_kernels.h"

namespace split::test {
namespace {

// A row's step by plain means.
RowStep rounded_step(std::span<const float> x) {
  RowStep step{};
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  step.scale = largest / 127.0f;
  for (size_t i = 0; i < x.size() && largest > 0; ++i) {
    step.numbers[i] = static_cast<int8_t>(std::nearbyint(x[i] * (1.0f / step.scale)));
    step.sums[i * kStepSums / kBlock] =
        static_cast<int16_t>(step.sums[i * kStepSums / kBlock] + step.numbers[i]);
  }
  return step;
}

std::vector<RowStep> rounded_row(std::span<const float> x) {
  std::vector<RowStep> steps;
  for (size_t k = 0; k < x.size(); k += kBlock) {
    steps.push_back(rounded_step(x.subspan(k, std::min(kBlock, x.size() - k))));
  }
  return steps;
}

// Rows of all kinds of blocks: ordinary ones, zeros, and the largest number everywhere.
std::vector<float> rows_of(size_t rows, size_t inner) {
  std::vector<float> x = ordinary(rows * inner, 7);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / kBlock % 5 == 2) x[i] = 0;
    if (i / kBlock % 5 == 4) x[i] = i % 3 == 0 ? -2.5f : 2.5f;
  }
  return x;
}

// Numbers of a matrix at the ends of their range, as any file may have them.
void set_extremes(DType dtype, std::vector<std::byte>& blocks) {
  for (size_t at = 0; at < blocks.size(); at += 3 * block_bytes(dtype)) {
    std::fill_n(blocks.begin() + static_cast<ptrdiff_t>(at + sizeof(uint16_t)),
                block_bytes(dtype) - sizeof(uint16_t),
                dtype == DType::kQ8_0 ? std::byte{0x80} : std::byte{0x0f});
  }
}

// A sum and one step of a row times group `s` of a column's blocks, by plain loops.
float with_step(DType dtype, const std::byte* blocks, size_t s, const RowStep& row, float total) {
  const auto dot = [&](size_t from, size_t to, const auto& number) {
    int sum = 0;
    for (size_t k = from; k < to; ++k) sum += row.numbers[k] * static_cast<int>(number(k));
    return static_cast<float>(sum);
  };
  constexpr size_t kHalf = kBlock / 2, kGroups = kSuperBlock / kBlock;
  if (dtype == DType::kQ4_K) {
    const GroupQ4K group = group_q4_k(blocks + s / kGroups * block_bytes(dtype), s % kGroups);
    const float sum = dot(
        0, kBlock, [&](size_t k) { return k < kHalf ? group.q[k] & 15 : group.q[k - kHalf] >> 4; });
    const float less = f16_to_f32(group.dmin) * group.minimum;
    total = std::fma(-less, row.scale * dot(0, kBlock, [](size_t) { return 1; }), total);
    return std::fma(sum, f16_to_f32(group.d) * group.scale * row.scale, total);
  }
  if (dtype == DType::kQ6_K) {
    const GroupQ6K group = group_q6_k(blocks + s / kGroups * block_bytes(dtype), s % kGroups);
    const auto number = [&](size_t k) { return group.q[k]; };
    const float sum =
        dot(0, kHalf, number) * group.scales[0] + dot(kHalf, kBlock, number) * group.scales[1];
    return std::fma(sum, f16_to_f32(group.d) * row.scale, total);
  }
  const std::byte* const block = blocks + s * block_bytes(dtype);
  const float sum = dot(0, kBlock, [&](size_t k) { return number_at(dtype, block, k); });
  return std::fma(sum, scale_of(block) * row.scale, total);
}

// Bit for bit what plain loops make of whole numbers, in every set and for every number of rows and
// columns, whole steps of K or not.
void check_products(DType dtype, std::initializer_list<size_t> inners) {
  constexpr size_t kMost = 35;  // rows
  for (const size_t inner : inners) {
    for (const size_t width : {1, 7, 16, 20, 32, 47, 48, 49, 96, 100, 145}) {
      const size_t steps = steps_of(inner);
      auto w = random_blocks(dtype, width, inner, static_cast<uint32_t>(inner + width));
      if (!is_k_quant(dtype)) set_extremes(dtype, w);
      std::vector<std::byte> read(strips_of(width) * steps * step_bytes(dtype));
      for (size_t strip = strips_of(width); strip-- > 0;) {
        pack_strip(w.data(), dtype, Rounding::kInt8, true, inner, width, strip, read.data());
      }
      const auto x = rows_of(kMost, inner);
      std::vector<float> all(kMost * width);
      for (size_t r = 0; r < kMost; ++r) {
        const auto row = rounded_row(std::span(x).subspan(r * inner, inner));
        for (size_t m = 0; m < width; ++m) {
          float total = 0;
          for (size_t s = 0; s < steps; ++s) {
            total = with_step(dtype, w.data() + m * row_bytes(dtype, inner), s, row[s], total);
          }
          all[r * width + m] = total;
        }
      }
      for (const CpuKernels* kernels : kernel_sets()) {
        const CpuKernels::Steps& set = kernels->int8;
        std::vector<std::byte> form(rounded_bytes(48, inner, set.step));
        for (size_t r = 0; r < kMost; ++r)
          set.round({x.data() + r * inner, inner, r, 0, inner, form.data()});
        check_rows(set, form, read, dtype, inner, width,
                   {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 35}, all, kernels->name);
      }
    }
  }
}

constexpr std::initializer_list<size_t> kInners = {1, 7, 31, 32, 33, 64, 100, 255, 257, 640};
TEST(Int8Kernels, MultiplyByQ8) { check_products(DType::kQ8_0, kInners); }
TEST(Int8Kernels, MultiplyByQ4) { check_products(DType::kQ4_0, kInners); }
TEST(Int8Kernels, MultiplyByQ4K) { check_products(DType::kQ4_K, {256, 768}); }
TEST(Int8Kernels, MultiplyByQ6K) { check_products(DType::kQ6_K, {256, 768}); }

// To the nearest of the 255 multiples of a 127th of the largest, halves to even; zeros behind.
TEST(Int8Kernels, RoundRows) {
  std::vector<float> x = ordinary(3 * kBlock, 3);
  std::fill_n(x.begin(), kBlock, 0.0f);
  x[kBlock] = 127, x[kBlock + 1] = 0.5f, x[kBlock + 2] = 1.5f, x[kBlock + 3] = -2.5f;
  for (size_t i = 4; i < kBlock; ++i) x[kBlock + i] /= 32;
  x.resize(x.size() - 5);
  for (const CpuKernels* kernels : kernel_sets()) {
    std::vector<RowStep> got(2 * 3, RowStep{{1}, 7, {7, 7}});
    kernels->int8.round(
        {x.data(), x.size(), 1, 0, x.size(), reinterpret_cast<std::byte*>(got.data())});
    const auto expected = rounded_row(x);
    EXPECT_EQ(expected[1].numbers[1], 0);
    EXPECT_EQ(expected[1].numbers[2], 2);
    EXPECT_EQ(expected[1].numbers[3], -2);
    for (size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(std::memcmp(&got[3 + s], &expected[s], sizeof(RowStep)), 0)
          << kernels->name << ", step " << s;
    }
  }
}

// A hidden state that is not finite is seen in the product, not hidden by the rounding.
TEST(Int8Kernels, WhatIsNotFiniteStaysSo) {
  const auto scratch = std::make_unique<StepScratch>();
  std::vector<std::byte> w = random_blocks(DType::kQ8_0, 1, kBlock, 5);
  const uint16_t one = f32_to_f16(1);
  std::memcpy(w.data(), &one, sizeof one);
  std::vector<std::byte> read(step_bytes(DType::kQ8_0));
  pack_strip(w.data(), DType::kQ8_0, Rounding::kInt8, true, kBlock, 1, 0, read.data());
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const CpuKernels* kernels : kernel_sets()) {
      std::vector<float> x = ordinary(kBlock, 3);
      x[9] = bad;
      std::vector<RowStep> form(1);
      StepTask task;
      task.x = reinterpret_cast<std::byte*>(form.data());
      kernels->int8.round(
          {x.data(), kBlock, 0, 0, kBlock, reinterpret_cast<std::byte*>(form.data())});
      task.rows = 1;
      task.w = read.data();
      task.dtype = DType::kQ8_0;
      task.inner = kBlock;
      task.scratch = scratch->bytes;
      EXPECT_FALSE(std::isfinite(all_columns(task, kernels->int8.matmul, 1, kStripColumns)[0]))
          << kernels->name << ": " << bad;
    }
  }
}

}  // namespace
}  // namespace split::test
