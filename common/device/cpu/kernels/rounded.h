// The kernels of rounded rows: products in bf16 and in int8, and stored keys and values. For
// kernels.cpp and rounded.cpp only, which are compiled once for each instruction set.
#pragma once

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/matmul_bf16_fma.h"
#include "device/cpu/kernels/matmul_int8.h"
#include "device/cpu/kernels/ops.h"
#include "device/cpu/kernels/rounding.h"
#if defined(__AMX_BF16__)
#include "device/cpu/kernels/matmul_amx.h"
#elif defined(__AVX512BF16__)
#include "device/cpu/kernels/matmul_bf16_pairs.h"
#endif
#include "device/cpu/kernels/page_attention.h"

namespace split::SPLIT_ISA {
namespace {

void narrow(const float* from, DType dtype, std::byte* to, size_t n) {
  if (dtype == DType::kQ8_0) {
    for (size_t i = 0; i < n; i += kBlock) quantise_block(from + i, to + kv_bytes(dtype, i));
    return;
  }
  if (dtype != DType::kF16) {
    __builtin_memcpy(to, from, n * sizeof(float));
    return;
  }
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store_f16(to + 2 * i, load(from + i));
  if (i < n) {
    std::byte halves[32];
    store_f16(halves, load_as<DType::kF32>(reinterpret_cast<const std::byte*>(from + i), n - i));
    __builtin_memcpy(to + 2 * i, halves, 2 * (n - i));
  }
}

void store_kv(const StoreKvTask& task) {
  if (task.dtype == DType::kBF16) return store_kv_pairs(task);
  if (task.dtype == DType::kQ8_0) return store_kv_blocks(task);
  const size_t bytes = kv_bytes(task.dtype, task.head_size);  // a token in a head
  for (size_t r = 0; r < task.rows; ++r) {
    size_t at = (task.slot + r) * bytes;
    for (size_t c = 0; c < task.channels; c += task.head_size, at += kPageTokens * bytes) {
      narrow(task.from + r * task.stride + c, task.dtype, task.page + at, task.head_size);
    }
  }
}

template <bool blocks>
constexpr CpuKernels::Steps few = {round_to_floats<blocks>, matmul_steps, kBlock * sizeof(float),
                                   0};

constexpr RoundedKernels rounded_kernels() {
  RoundedKernels all{};
  all.bf16 = {few<false>, {}, 0};
  all.blocks = {few<true>, {}, 0};
#if defined(__AMX_BF16__)
  all.bf16.many = {round_to_tiles<false>, matmul_tiles, kTileRow, kPartSteps};
  all.bf16.many_from = 1;
  all.blocks.many = {round_to_tiles<true>, matmul_tiles, kTileRow, 0};
  all.blocks.many_from = 3;
#elif defined(__AVX512BF16__)
  all.bf16.many = all.blocks.many = {round_to_tiles<false>, matmul_pairs, kTileRow, 0};
  all.bf16.many_from = all.blocks.many_from = 1;
#endif
  all.int8 = int8_steps();
  all.dequantise = dequantise;
  all.store_kv = store_kv;
  all.attend_rounded = attend_rounded;
  return all;
}

}  // namespace
}  // namespace split::SPLIT_ISA
