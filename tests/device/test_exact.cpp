// exact1, the specification of the profile int8: every set of the CPU's kernels gives its bits, and
// its own are those of tests/golden/exact/exact1.json.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/cpu_kernels.h"
#include "support/exact/inputs.h"
#include "support/exact/specification.h"
#include "support/golden_values.h"

namespace split::test {
namespace {

const nlohmann::json& golden() {
  static const auto all =
      nlohmann::json::parse(read_file(source("tests/golden/exact/exact1.json"), 1 << 20));
  return all;
}
void expect_golden(std::string_view what, uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  EXPECT_EQ(golden().value(std::string(what), ""), text) << what;
}

// Over all magnitudes and densely where models compute.
TEST(Exact, FunctionsHaveTheSameBitsInEverySet) {
  std::vector<float> in;
  for (uint32_t i = 0; i < 1u << 18; ++i)
    in.push_back(glsl::intBitsToFloat(static_cast<int>(i << 14)));
  Numbers numbers(1);
  while (in.size() < 1u << 19) in.push_back(20 * numbers.unit());
  std::erase_if(in, [](float x) { return std::isnan(x) || std::fpclassify(x) == FP_SUBNORMAL; });
  std::vector<float> out(in.size()), other(in.rbegin(), in.rend());
  for (const Op op : ops_of(OpKind::kUnary)) {
    for (const CpuKernels* kernels : kernel_sets()) {
      kernels->unary[op](in.data(), out.data(), in.size());
      for (float& y : out) y = std::isnan(y) ? NAN : exact::table::clean_f(y);
      expect_golden(op_info(op).name, exact::hash_of(out));
    }
  }
  for (const CpuKernels* kernels : kernel_sets()) {
    kernels->binary[Op::k_div](in.data(), other.data(), out.data(), in.size());
    for (float& y : out) y = std::isnan(y) ? NAN : exact::table::clean_f(y);
    expect_golden("div", exact::hash_of(out));
  }
}

TEST(Exact, QuotientsAndRootsThatAreFloatsAreExact) {
  using exact::table::divide_f;
  Numbers numbers(2);
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<float>(numbers.next() % 4095 + 1),
               b = static_cast<float>(numbers.next() % 4095 + 1);
    ASSERT_EQ(divide_f(a * b, b), a) << a << " " << b;
    ASSERT_EQ(exact::table::sqrt_f(a * a), a);
  }
  int apart = 0;
  for (int i = 0; i < 100000; ++i) {
    const float a = 100 * numbers.unit(), b = numbers.unit();
    apart += divide_f(a, b) == a / b ? 0 : 1;
  }
  EXPECT_LT(apart, 100);
}

TEST(Exact, SumsOfRowsHaveTheSameBitsInEverySet) {
  uint64_t hash = 0;
  for (const size_t n : {1, 2, 15, 16, 17, 64, 100, 255, 256, 257, 300, 768, 2048, 5000}) {
    const auto x = activations(3 * n, static_cast<uint32_t>(n), Kind::kOrdinary);
    for (const CpuKernels* kernels : kernel_sets()) {
      std::vector<float> y(3);
      kernels->reduce[Op::k_reduce_sum](x.data(), n, 3, n, y.data());
      for (size_t row = 0; row < 3; ++row) {
        EXPECT_EQ(y[row], exact::row_sum(std::span(x).subspan(row * n, n)))
            << kernels->name << " " << n;
      }
      if (kernels == kernel_sets()[0]) hash = exact::hash_of(y, hash);
    }
  }
  expect_golden("sums", hash);
}

// K to 16384, rows to 64, all kinds of activations, with denormals and without.
TEST(Exact, ProductsHaveTheSameBitsInEverySet) {
  Numbers numbers(3);
  uint64_t hash = 0;
  const int cases = std::getenv("SPLIT_LONG") != nullptr ? 400 : 40;
  for (int i = 0; i < cases; ++i) {
    const DType dtype = std::array{DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}[i % 4];
    const size_t unit = is_k_quant(dtype) ? kSuperBlock : kBlock;
    const size_t inner = unit * (1 + numbers.next() % (i % 8 == 7 ? 16384 / unit : 2048 / unit));
    const size_t rows = 1 + numbers.next() % (i % 3 == 0 ? 64 : 6), width = 1 + numbers.next() % 50;
    const auto w = random_blocks(dtype, width, inner, numbers.next());
    const auto x = activations(rows * inner, numbers.next(), kKinds[i % 5]);
    std::vector<float> expected(rows * width);
    for (size_t r = 0; r < rows; ++r) {
      const auto row = exact::rounded(std::span(x).subspan(r * inner, inner));
      for (size_t m = 0; m < width; ++m) {
        expected[r * width + m] =
            exact::product(dtype, w.data() + m * row_bytes(dtype, inner), row);
      }
    }
    if (i < 40) hash = exact::hash_of(expected, hash);
    std::vector<std::byte> packed(strips_of(width) * steps_of(inner) * step_bytes(dtype));
    for (size_t strip = 0; strip < strips_of(width); ++strip) {
      pack_strip(w.data(), dtype, Rounding::kInt8, true, inner, width, strip, packed.data());
    }
    for (const CpuKernels* kernels : kernel_sets()) {
      for (const bool flush : {false, true}) {
        const Flush mode(flush);
        std::vector<std::byte> form(rounded_bytes(64, inner, kernels->int8.step));
        for (size_t r = 0; r < rows; ++r) {
          kernels->int8.round({x.data() + r * inner, inner, r, 0, inner, form.data()});
        }
        check_rows(kernels->int8, form, packed, dtype, inner, width, {rows}, expected,
                   cat(kernels->name, flush ? ", denormals flushed" : ""));
      }
    }
  }
  expect_golden("products", hash);
}

TEST(Exact, AttentionHasTheSameBitsInEverySet) {
  uint64_t hash = 0;
  for (const size_t size : {32, 64, 128}) {
    for (const Kind kind : kKinds) {
      const size_t n = 300, pages = (n + kPageTokens - 1) / kPageTokens;
      const float scale = 0.125f, much = kind == Kind::kLarge ? std::ldexp(1.0f, -30) : 1.0f;
      auto q = activations(n * size, 1, kind), k = activations(n * size, 2, kind);
      const auto v = activations(n * size, 3, kind);
      for (float& x : q) x *= much;
      auto bf16 = [](std::vector<float> x) {
        for (float& each : x) each = exact::table::bf16_f(each);
        return x;
      };
      const auto keys = bf16(k), values = bf16(v);
      std::vector<float> expected;
      for (size_t row = 0; row < n; ++row) {
        const auto y = exact::attended(std::span(q).subspan(row * size, size), keys.data(),
                                       values.data(), size, row + 1, scale);
        expected.insert(expected.end(), y.begin(), y.end());
      }
      hash = exact::hash_of(expected, hash);
      std::vector<uint32_t> table(pages);
      for (size_t page = 0; page < pages; ++page)
        table[page] = static_cast<uint32_t>(pages - 1 - page);
      for (const CpuKernels* kernels : kernel_sets()) {
        std::vector<std::byte> stored[2];
        for (const bool values_too : {false, true}) {
          auto& to = stored[values_too];
          to.resize(pages * kPageTokens * kv_bytes(DType::kBF16, size));
          for (size_t first = 0; first < n; first += kPageTokens) {
            StoreKvTask task;
            task.from = (values_too ? v : k).data() + first * size;
            task.stride = task.channels = task.head_size = size;
            task.rows = std::min<size_t>(kPageTokens, n - first);
            task.dtype = DType::kBF16;
            task.values = values_too;
            task.page =
                to.data() + table[first / kPageTokens] * kPageTokens * kv_bytes(DType::kBF16, size);
            kernels->store_kv(task);
          }
        }
        for (const size_t rows : {1, 4, 16}) {
          std::vector<float> got(n * size), scratch(attend_scratch(size));
          for (size_t row = 0; row < n; row += rows) {
            std::vector<KeyRange> seen;
            for (size_t r = row; r < std::min(row + rows, n); ++r) {
              seen.push_back({0, static_cast<uint32_t>(r + 1)});
            }
            AttendTask task;
            task.q = q.data() + row * size;
            task.q_stride = task.out_stride = task.kv_width = task.head_size = size;
            task.rows = seen.size();
            task.seen = seen.data();
            task.keys = stored[0].data();
            task.values = stored[1].data();
            task.dtype = DType::kBF16;
            task.pages = table.data();
            task.scale = scale;
            task.out = got.data() + row * size;
            task.scratch = scratch.data();
            kernels->attend(task, true);
          }
          EXPECT_EQ(first_difference(got, expected), -1)
              << kernels->name << ", heads of " << size << ", kind " << static_cast<int>(kind)
              << ", " << rows << " rows";
        }
      }
    }
  }
  expect_golden("attention", hash);
}

// Bits of numbers beyond a block of int8, and of no numbers: a driver's NaN may be 0x7fffffff.
constexpr int kBeyond[] = {0x5d800000, 0x7f800000, 0x7fc00000, 0x7fffffff, -1};

TEST(Exact, WhatOverflowsSpoilsAllThatIsMadeOfItsRow) {
  constexpr size_t kInner = 2 * kSuperBlock, kWidth = 40;
  for (const int bits : kBeyond) {
    const float beyond = glsl::intBitsToFloat(bits);
    EXPECT_EQ(std::isfinite(exact::table::bf16_f(beyond)), bits == kBeyond[0]) << bits;
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
      auto w = random_blocks(dtype, kWidth, kInner, 1);
      if (dtype == DType::kQ8_0) std::fill_n(w.begin(), 9 * row_bytes(dtype, kInner), std::byte{0});
      std::vector<std::byte> packed(strips_of(kWidth) * steps_of(kInner) * step_bytes(dtype));
      for (size_t strip = 0; strip < strips_of(kWidth); ++strip) {
        pack_strip(w.data(), dtype, Rounding::kInt8, true, kInner, kWidth, strip, packed.data());
      }
      for (const size_t at : {size_t{0}, size_t{37}, kInner - 1}) {
        auto x = activations(2 * kInner, 1, Kind::kOrdinary);
        x[at] = beyond;
        for (const CpuKernels* kernels : kernel_sets()) {
          std::vector<std::byte> form(rounded_bytes(64, kInner, kernels->int8.step));
          for (size_t r = 0; r < 2; ++r) {
            kernels->int8.round({x.data() + r * kInner, kInner, r, 0, kInner, form.data()});
          }
          const auto y = multiplied(kernels->int8, form, packed, dtype, kInner, kWidth, 2);
          for (size_t m = 0; m < 2 * kWidth; ++m) {
            EXPECT_EQ(std::isfinite(y[m]), m >= kWidth) << kernels->name << " " << m << " " << bits;
          }
        }
      }
    }
  }
}

// The mistakes that the order of work names are seen: a segment of 4, neighbours first; and a
// product that is not rounded before it is added.
TEST(Exact, OtherOrdersHaveOtherBits) {
  const auto x = activations(2048, 5, Kind::kOrdinary);
  const auto w = random_blocks(DType::kQ8_0, 50, 2048, 7);
  const auto row = exact::rounded(x);
  int by_four = 0, contracted = 0;
  for (size_t m = 0; m < 50; ++m) {
    const std::byte* const column = w.data() + m * row_bytes(DType::kQ8_0, 2048);
    const float right = exact::product(DType::kQ8_0, column, row);
    by_four += exact::product(DType::kQ8_0, column, row, 4) == right ? 0 : 1;
    float total = 0;
    for (size_t b = 0; b < row.size();) {
      float part = 0;
      for (const size_t end = b + 8; b < end; ++b) {
        const std::byte* const block = column + b * block_bytes(DType::kQ8_0);
        int whole = 0;
        for (size_t k = 0; k < kBlock; ++k) {
          whole += row[b].numbers[k] * static_cast<int>(number_at(DType::kQ8_0, block, k));
        }
        part = std::fma(static_cast<float>(whole), scale_of(block) * row[b].scale, part);
      }
      total = total + part;
    }
    contracted += total == right ? 0 : 1;
  }
  EXPECT_GT(by_four, 10);
  EXPECT_GT(contracted, 10);
  EXPECT_NE(exact::row_sum(x, true), exact::row_sum(x));
}

}  // namespace
}  // namespace split::test
