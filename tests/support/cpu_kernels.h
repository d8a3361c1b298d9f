// Helpers that the tests of the CPU's kernels share: the sets there are, and what they multiply.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "device/cpu/kernels/kernels.h"
#include "device/kernel_values.h"
#include "run_program.h"
#include "tensor/blocks.h"

namespace split {
#ifdef SPLIT_X86_KERNELS
extern const RoundedKernels kRoundedEmulated;          // AMX, by emulated_tiles.h
extern const RoundedKernels::Steps kInt8EmulatedDots;  // AVX-VNNI, by emulated_dots.h
#endif
}  // namespace split

namespace split::test {

// The limits of choose_kernels().
inline constexpr const char* kInstructionSets[] = {
    "scalar", "avx2", "avxvnni", "avx512", "vnni", "avx512bf16", "amx", "neon", "dotprod"};

// The kernels this processor can run, the plain ones first.
inline std::vector<const CpuKernels*> kernel_sets() {
  std::vector<const CpuKernels*> sets;
  for (const char* limit : kInstructionSets) {
    const CpuKernels& kernels = choose_kernels(limit);
    if (sets.empty() || sets.back() != &kernels) sets.push_back(&kernels);
  }
#ifdef SPLIT_X86_KERNELS
  static const CpuKernels dots = [] {
    CpuKernels set = kKernelsAvx2;
    set.name = "avxvnni, emulated";
    set.int8 = kInt8EmulatedDots;
    return set;
  }();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&dots);
  static const CpuKernels tiles = [] {
    CpuKernels set = kKernelsAvx512;
    static_cast<RoundedKernels&>(set) = kRoundedEmulated;
    set.name = "emulated";
    return set;
  }();
  if (__builtin_cpu_supports("avx512bf16")) sets.push_back(&tiles);
#endif
  return sets;
}

// Whether a set multiplies pairs of bf16 in an order of its own.
inline bool by_pairs(const CpuKernels& set) { return std::string_view(set.name) == "avx512bf16"; }

inline std::vector<std::byte> narrowed(const std::vector<float>& from, DType dtype) {
  std::vector<std::byte> bytes(from.size() * dtype_size(dtype));
  convert({DType::kF32, {static_cast<int64_t>(from.size())}, std::as_bytes(std::span(from))}, dtype,
          bytes);
  return bytes;
}
inline std::vector<float> widened(const std::vector<std::byte>& from, DType dtype) {
  std::vector<float> out(from.size() / dtype_size(dtype));
  convert({dtype, {static_cast<int64_t>(out.size())}, from}, DType::kF32,
          std::as_writable_bytes(std::span(out)));
  return out;
}

// Blocks of any numbers, with scales of all kinds: of either sign, zero, subnormal.
inline std::vector<std::byte> random_blocks(DType dtype, size_t rows, size_t inner, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(rows * row_bytes(dtype, inner));
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  const auto put_scale = [&](size_t at) {
    const uint32_t kind = random() % 8;
    const auto sign = static_cast<uint16_t>(random() % 2 << 15);
    const auto ordinary = static_cast<uint16_t>(0x2000 + random() % 0x1c00);  // 2^-7 .. 1
    const auto d = static_cast<uint16_t>(sign | (kind == 0   ? 0
                                                 : kind == 1 ? random() % 0x400
                                                             : ordinary));
    std::memcpy(out.data() + at, &d, sizeof d);
  };
  for (size_t at = 0; at < out.size(); at += block_bytes(dtype)) {
    put_scale(at + (dtype == DType::kQ6_K ? 208 : 0));
    if (dtype == DType::kQ4_K) put_scale(at + 2);
  }
  return out;
}

// A number of a block, and its scale.
inline float number_at(DType dtype, const std::byte* block, size_t k) {
  const auto* const q = reinterpret_cast<const uint8_t*>(block) + sizeof(uint16_t);
  if (dtype == DType::kQ8_0) return static_cast<int8_t>(q[k]);
  return static_cast<float>((k < kBlock / 2 ? q[k] & 15 : q[k - kBlock / 2] >> 4) - 8);
}
inline float scale_of(const std::byte* block) {
  uint16_t d = 0;
  std::memcpy(&d, block, sizeof d);
  return f16_to_f32(d);
}

struct alignas(64) StepScratch {
  std::byte bytes[kStepScratch];
};

// y [rows, width] of a product, cut as the device cuts it; `task` says by what.
template <typename Task>
std::vector<float> all_columns(Task task, void (*matmul)(const Task& task), size_t width,
                               size_t each) {
  std::vector<float> y(task.rows * width), part(task.rows * kTaskColumns);
  task.y = part.data();
  task.y_stride = kTaskColumns;
  for (task.first = 0; task.first < width; task.first += each) {
    task.columns = std::min(each, width - task.first);
    matmul(task);
    for (size_t row = 0; row < task.rows; ++row) {
      std::copy_n(part.data() + row * kTaskColumns, task.columns,
                  y.data() + row * width + task.first);
    }
  }
  return y;
}

// The product of rows: `form` is x as `set` rounds it, `read` the packed matrix.
inline std::vector<float> multiplied(const RoundedKernels::Steps& set,
                                     const std::vector<std::byte>& form,
                                     const std::vector<std::byte>& read, DType dtype, size_t inner,
                                     size_t width, size_t rows) {
  const auto scratch = std::make_unique<StepScratch>();
  StepTask task;
  task.x = form.data();
  task.rows = rows;
  task.w = read.data();
  task.dtype = dtype;
  task.inner = inner;
  task.scratch = scratch->bytes;
  return all_columns(task, set.matmul, width, rows % 2 == 0 ? kStripColumns : kTaskColumns);
}

// The first rows of `all` [rows, width], for each number of rows: whatever the device cuts a
// product into.
inline void check_rows(const RoundedKernels::Steps& set, const std::vector<std::byte>& form,
                       const std::vector<std::byte>& read, DType dtype, size_t inner, size_t width,
                       std::initializer_list<size_t> numbers, const std::vector<float>& all,
                       const std::string& name) {
  for (const size_t rows : numbers) {
    const std::vector<float> y = multiplied(set, form, read, dtype, inner, width, rows);
    ASSERT_EQ(first_difference(y, std::span(all).first(y.size())), -1)
        << name << ": " << rows << " rows, " << inner << " x " << width;
  }
}

}  // namespace split::test
