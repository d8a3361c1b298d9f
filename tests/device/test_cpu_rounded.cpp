// The CPU's products of rows rounded to bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "support/cpu_kernels.h"

namespace split::test {
namespace {

// Bit for bit what plain loops make of rows rounded to bf16: in every set, by tiles where there are
// some, for every number of rows and columns, whole steps of K or not.
void check_step_products(DType dtype, bool transposed) {
  for (const size_t inner : {1, 7, 31, 32, 33, 64, 100, 257, 800}) {
    for (const size_t width : {1, 7, 16, 20, 32, 47, 48, 49, 96, 100, 145}) {
      const size_t steps = steps_of(inner);
      const auto w = is_quantised(dtype)
                         ? random_blocks(dtype, width, inner, static_cast<uint32_t>(inner + width))
                         : narrowed(ordinary(inner * width, 6), dtype);
      const auto weights = is_quantised(dtype) ? std::vector<float>() : widened(w, dtype);
      std::vector<std::byte> read(strips_of(width) * steps * step_bytes(dtype));
      for (size_t strip = strips_of(width); strip-- > 0;) {
        pack_strip(w.data(), dtype, Rounding::kBF16, transposed, inner, width, strip, read.data());
      }
      const size_t most = 70;  // rows: two blocks of tiles and some
      auto x = ordinary(most * inner, 7);
      // Values at the ends of a block's range, and a whole row of the smallest.
      for (size_t i = 0; is_quantised(dtype) && i < inner; ++i) {
        x[3 * inner + i] = i % 2 == 0 ? -0x1p-50f : 0x1.8p-50f;
        x[9 * inner + i] = i % 3 == 0 ? 0x1.4p47f : i % 3 == 1 ? 1.5f : -0x1.2p-49f;
      }
      const auto rounded = widened(narrowed(x, DType::kBF16), DType::kBF16);
      std::vector<float> all(most * width), all_by_pairs(most * width);
      for (size_t m = 0; m < width; ++m) {
        for (size_t r = 0; r < most; ++r) {
          float total = 0, total_by_pairs = 0;
          float chain = 0;  // over all pairs, of blocks a step's, of each the odd k first
          for (size_t s = 0; s < steps; ++s) {
            const std::byte* const block =
                is_quantised(dtype) ? w.data() + (m * steps + s) * block_bytes(dtype) : nullptr;
            float chains[2] = {0, 0};
            for (size_t i = 0; i < kBlock; ++i) {
              const size_t k = i ^ 1, at = s * kBlock + k;
              if (at >= inner) continue;
              const float weight = block != nullptr ? number_at(dtype, block, k)
                                   : transposed     ? weights[m * inner + at]
                                                    : weights[at * width + m];
              chains[k % 2] = std::fma(rounded[r * inner + at], weight, chains[k % 2]);
              chain = std::fma(rounded[r * inner + at], weight, chain);
            }
            const float sum = chains[0] + chains[1];
            total = block != nullptr ? std::fma(sum, scale_of(block), total) : total + sum;
            if (block == nullptr) continue;
            total_by_pairs = std::fma(chain, scale_of(block), total_by_pairs);
            chain = 0;
          }
          all[r * width + m] = total;
          all_by_pairs[r * width + m] = is_quantised(dtype) ? total_by_pairs : chain;
        }
      }
      const auto check = [&](const CpuKernels& kernels, const CpuKernels::Steps& set,
                             const std::vector<float>& expected, const char* kind) {
        std::vector<std::byte> form(rounded_bytes((most + 15) / 16 * 16, inner, set.step));
        for (size_t r = 0; r < most; ++r) {
          // In parts of two steps.
          for (size_t first = 0; first < inner; first += 2 * kBlock) {
            set.round({x.data() + r * inner + first, inner, r, first,
                       std::min(2 * kBlock, inner - first), form.data()});
          }
        }
        check_rows(set, form, read, dtype, inner, width,
                   {1, 2, 3, 6, 7, 15, 16, 17, 31, 32, 33, 70}, expected, cat(kernels.name, kind));
      };
      for (const CpuKernels* kernels : kernel_sets()) {
        const CpuKernels::ByRows& sets = is_quantised(dtype) ? kernels->blocks : kernels->bf16;
        check(*kernels, sets.few, all, "");
        if (sets.many.matmul == nullptr) continue;
        const bool pairs = by_pairs(*kernels);
        check(*kernels, sets.many, pairs ? all_by_pairs : all, pairs ? ", pairs" : ", tiles");
      }
    }
  }
}

TEST(Kernels, RoundedBF16) { check_step_products(DType::kBF16, false); }
TEST(Kernels, RoundedBF16Transposed) { check_step_products(DType::kBF16, true); }
TEST(Kernels, RoundedQ8) { check_step_products(DType::kQ8_0, true); }
TEST(Kernels, RoundedQ4) { check_step_products(DType::kQ4_0, true); }

// Two types, each packed for rows in bf16 and in int8.
template <DType a, DType b>
constexpr std::pair<DType, Rounding> kBlocksPacked[] = {
    {a, Rounding::kBF16}, {a, Rounding::kInt8}, {b, Rounding::kBF16}, {b, Rounding::kInt8}};

// A strip of blocks becomes that of the matrix of their numbers times their scales, in BF16.
TEST(Kernels, Dequantise) {
  for (const auto& [dtype, packing] : kBlocksPacked<DType::kQ8_0, DType::kQ4_0>) {
    for (const size_t inner : {32, 64, 320}) {
      for (const size_t width : {1, 16, 47, 145}) {
        const size_t steps = steps_of(inner);
        const auto blocks = random_blocks(dtype, width, inner, static_cast<uint32_t>(inner));
        std::vector<float> floats(width * inner);
        for (size_t i = 0; i < floats.size(); ++i) {
          const std::byte* const block =
              blocks.data() + (i / inner * steps + i % inner / kBlock) * block_bytes(dtype);
          floats[i] = number_at(dtype, block, i % inner % kBlock) * scale_of(block);
        }
        const auto matrix = narrowed(floats, DType::kBF16);
        const size_t each = steps * step_bytes(dtype), wide = steps * step_bytes(DType::kBF16);
        std::vector<std::byte> from(strips_of(width) * each), expected(strips_of(width) * wide),
            got(expected.size());
        for (size_t strip = 0; strip < strips_of(width); ++strip) {
          pack_strip(blocks.data(), dtype, packing, true, inner, width, strip, from.data());
          pack_strip(matrix.data(), DType::kBF16, Rounding::kBF16, true, inner, width, strip,
                     expected.data());
        }
        for (const CpuKernels* kernels : kernel_sets()) {
          std::ranges::fill(got, std::byte{1});
          for (size_t strip = 0; strip < strips_of(width); ++strip) {
            kernels->dequantise(from.data() + strip * each, dtype, packing, steps,
                                got.data() + strip * wide);
          }
          // Compares as floats: what fills a strip up may be a zero below zero.
          EXPECT_EQ(widened(got, DType::kBF16), widened(expected, DType::kBF16))
              << kernels->name << ": " << inner << " x " << width;
        }
      }
    }
  }
}

// Products by super-blocks: within a rounding of their numbers, and the same in every set.
TEST(Kernels, DequantiseSuperBlocks) {
  for (const auto& [dtype, packing] : kBlocksPacked<DType::kQ4_K, DType::kQ6_K>) {
    for (const size_t inner : {256, 768}) {
      for (const size_t width : {1, 31, 49}) {
        const size_t steps = steps_of(inner), row = row_bytes(dtype, inner);
        std::mt19937 random(static_cast<unsigned>(inner + width));
        std::vector<std::byte> blocks(width * row);
        for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
        for (size_t at = 0; at < blocks.size(); at += block_bytes(dtype)) {
          for (const size_t half :
               {dtype == DType::kQ6_K ? 208 : 0, dtype == DType::kQ6_K ? 208 : 2}) {
            const uint16_t d = f32_to_f16(0.01f + static_cast<float>(random() % 100) * 1e-3f);
            std::memcpy(blocks.data() + at + half, &d, sizeof d);
          }
        }
        std::vector<float> floats(width * inner);
        for (size_t r = 0; r < width; ++r) {
          dequantise_row(dtype, blocks.data() + r * row, inner, floats.data() + r * inner);
        }
        const auto matrix = narrowed(floats, DType::kBF16);
        const size_t each = steps * step_bytes(dtype), wide = steps * step_bytes(DType::kBF16);
        std::vector<std::byte> from(strips_of(width) * each), expected(strips_of(width) * wide),
            got(expected.size()), first;
        for (size_t strip = 0; strip < strips_of(width); ++strip) {
          pack_strip(blocks.data(), dtype, packing, true, inner, width, strip, from.data());
          pack_strip(matrix.data(), DType::kBF16, Rounding::kBF16, true, inner, width, strip,
                     expected.data());
        }
        const auto want = widened(expected, DType::kBF16);
        for (const CpuKernels* kernels : kernel_sets()) {
          for (size_t strip = 0; strip < strips_of(width); ++strip) {
            kernels->dequantise(from.data() + strip * each, dtype, packing, steps,
                                got.data() + strip * wide);
          }
          if (first.empty()) first = got;
          EXPECT_EQ(got, first) << kernels->name;
          const auto numbers = widened(got, DType::kBF16);
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_NEAR(numbers[i], want[i], 1e-5f + std::abs(want[i]) * 0x1p-7f)
                << kernels->name << ": " << dtype_name(dtype) << ", number " << i;
          }
        }
      }
    }
  }
}

#ifdef SPLIT_X86_KERNELS
// Errors as in a tile: of a row, and of a product.
TEST(Kernels, RoundedDenormalsAreZeros) {
  const std::vector<float> x = {1e-39f, 1e-20f};
  const auto w = narrowed({1.0f, 1e-20f}, DType::kBF16);
  alignas(64) std::byte scratch[kStepScratch], read[step_bytes(DType::kBF16)], form[16 << 10];
  pack_strip(w.data(), DType::kBF16, Rounding::kBF16, true, 2, 1, 0, read);
  for (const CpuKernels* kernels : kernel_sets()) {
    for (const CpuKernels::Steps* set : {&kernels->bf16.few, &kernels->bf16.many}) {
      if (set->matmul == nullptr) continue;
      float y[kTaskColumns] = {1};
      set->round({x.data(), 2, 0, 0, 2, form});
      StepTask task;
      task.x = form;
      task.rows = 1;
      task.w = read;
      task.inner = 2;
      task.columns = 1;
      task.y = y;
      task.y_stride = kTaskColumns;
      task.scratch = scratch;
      set->matmul(task);
      EXPECT_EQ(y[0], 0.0f) << kernels->name;
    }
  }
}
#endif

// To nearest even, as the table of types does it, but 0 of what is below 2^-50; zeros behind. For
// blocks infinite from 2^48 on; tiles for these have 2^64 times as much.
TEST(Kernels, RoundToBF16) {
  std::vector<float> x = ordinary(90, 3);
  for (const float odd :
       {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 1.00390625f, 1.01171875f, 1e-40f,
        1.1754942e-38f, 0x1p-50f, -0x1.fffp-51f, 0x1.fffp47f, -0x1p48f, 1e-30f, 1e30f}) {
    x.push_back(odd);
  }
  for (const CpuKernels* kernels : kernel_sets()) {
    for (const bool blocks : {false, true}) {
      const CpuKernels::ByRows& sets = blocks ? kernels->blocks : kernels->bf16;
      // Among other rows, which keep what no rounded number is.
      constexpr float kOther = 1.1f;
      std::vector<float> floats(16 * 128, kOther);
      sets.few.round(
          {x.data(), x.size(), 3, 0, x.size(), reinterpret_cast<std::byte*>(floats.data())});
      std::erase(floats, kOther);
      ASSERT_EQ(floats.size(), 128u) << kernels->name;
      std::vector<uint16_t> tiles(16 * 128, 7);
      if (sets.many_from > 0) {
        sets.many.round(
            {x.data(), x.size(), 3, 0, x.size(), reinterpret_cast<std::byte*>(tiles.data())});
      }
      const auto expected = [&](size_t i, bool ranged, float scale) -> uint16_t {
        if (i >= x.size() || std::abs(x[i]) < 0x1p-50f) return 0;
        if (ranged && std::abs(x[i]) >= 0x1p48f) return f32_to_bf16(std::copysign(INFINITY, x[i]));
        return f32_to_bf16(x[i] * scale);
      };
      for (size_t i = 0; i < 128; ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), uint32_t{expected(i, blocks, 1)} << 16)
            << kernels->name << i;
        if (sets.many_from == 0) continue;
        const bool scaled = blocks && !by_pairs(*kernels);
        EXPECT_EQ(tiles[i / 32 * 512 + 3 * 32 + i % 32], expected(i, scaled, scaled ? 0x1p64f : 1))
            << kernels->name << i;
      }
    }
  }
}

}  // namespace
}  // namespace split::test
