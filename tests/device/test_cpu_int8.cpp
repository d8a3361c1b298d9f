// The CPU's products of rows rounded to blocks of int8.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/cpu_kernels.h"
#include "support/exact/specification.h"

namespace split::test {
namespace {

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

// Bit for bit what the specification makes of them, in every set and for every number of rows and
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
        const auto row = exact::rounded(std::span(x).subspan(r * inner, inner));
        for (size_t m = 0; m < width; ++m) {
          all[r * width + m] = exact::product(dtype, w.data() + m * row_bytes(dtype, inner), row);
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
    const auto expected = exact::rounded(x);
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
