// Keys and values in BF16 or Q8_0 in their pages, in the order of the products of
// attention_bf16_matmul.h (kernels.h). For kernels.cpp only, which is compiled once for each
// instruction set.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/matmul_int8.h"
#include "device/cpu/kernels/rounding.h"
#include "device/cpu/kernels/transpose16.h"

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kPagePairs = kPageTokens / 2;
constexpr size_t kPagesOfSplit = kSplitKeys / kPageTokens;
static_assert(kPageTokens == 16 && kPageTokens == kKeysAtOnce);

// Bytes of one step of channels in a page, its scales first.
constexpr size_t page_step_bytes(DType dtype) { return kPageTokens * kv_bytes(dtype, kBlock); }
constexpr size_t page_scales(DType dtype) {
  return dtype == DType::kQ8_0 ? kPageTokens * sizeof(uint16_t) : 0;
}

// Stores one row of values as halves of pairs: every second of them.
inline void store_kv_half(const float* v, size_t channels, size_t slot, std::byte* page) {
  std::byte* to = page + slot / 2 * 64 + slot % 2 * sizeof(uint16_t);
  for (size_t c = 0; c < channels; c += 16, to += kPagePairs * 64) {
    for (size_t i = 0; i < 16; ++i) {
      const auto bits = static_cast<uint16_t>(bf16_bits(v[c + i]) >> 16);
      __builtin_memcpy(to + i * 4, &bits, sizeof bits);
    }
  }
}
// Stores two rows, of which the first has an even slot.
inline void store_kv_pair(const float* v, size_t stride, size_t channels, size_t slot,
                          std::byte* page) {
  std::byte* to = page + slot / 2 * 64;
  for (size_t c = 0; c < channels; c += 16, to += kPagePairs * 64) {
#if defined(__AVX512BF16__)
    store_rounded({small(load(v + c)), small(load(v + stride + c))}, to);
#else
    uint32_t words[16];
    for (size_t i = 0; i < 16; ++i) {
      words[i] = bf16_bits(v[c + i]) >> 16 | bf16_bits(v[stride + c + i]);
    }
    __builtin_memcpy(to, words, sizeof words);
#endif
  }
}
// Stores one row of keys as a column of pairs.
inline void store_kv_column(const float* k, size_t channels, std::byte* to) {
  for (size_t c = 0; c < channels; c += kBlock) {
    uint32_t words[kPairs];
    round_halves(k + c, kBlock, reinterpret_cast<std::byte*>(words));
    for (size_t p = 0; p < kPairs; ++p, to += 64) {
      __builtin_memcpy(to, &words[p], sizeof words[p]);
    }
  }
}

// Stores sixteen rows of keys, a whole page: its columns side by side.
inline void store_kv_columns(const float* k, size_t stride, size_t channels, std::byte* to) {
  using Line = uint32_t __attribute__((vector_size(64)));
  for (size_t c = 0; c < channels; c += kBlock, to += kPairs * 64) {
    Line rows[kPageTokens];
    for (size_t r = 0; r < kPageTokens; ++r) {
      round_halves(k + r * stride + c, kBlock, reinterpret_cast<std::byte*>(&rows[r]));
    }
    transpose16(rows);
    __builtin_memcpy(to, rows, sizeof rows);
  }
}

void store_kv_pairs(const StoreKvTask& task) {
  const auto row = [&](size_t r) { return task.from + r * task.stride; };
  if (task.values) {
    for (size_t r = 0; r < task.rows; ++r) {
      const size_t slot = task.slot + r;
      if (slot % 2 == 0 && r + 1 < task.rows) {
        store_kv_pair(row(r), task.stride, task.channels, slot, task.page);
        ++r;
      } else {
        store_kv_half(row(r), task.channels, slot, task.page);
      }
    }
    return;
  }
#if defined(__AVX512F__)  // else the square is too large for the registers
  if (task.rows == kPageTokens) {
    return store_kv_columns(task.from, task.stride, task.channels, task.page);
  }
#endif
  for (size_t r = 0; r < task.rows; ++r) {
    store_kv_column(row(r), task.channels, task.page + (task.slot + r) * sizeof(uint32_t));
  }
}

void store_kv_blocks(const StoreKvTask& task) {
  constexpr size_t kScales = page_scales(DType::kQ8_0);
  for (size_t r = 0; r < task.rows; ++r) {
    const size_t slot = task.slot + r;
    for (size_t c = 0; c < task.channels; c += kBlock) {
      std::byte block[sizeof(uint16_t) + kBlock];
      const std::byte* const numbers = block + sizeof(uint16_t);
      quantise_block(task.from + r * task.stride + c, block);
      std::byte* const to = task.page + c / kBlock * page_step_bytes(DType::kQ8_0);
      __builtin_memcpy(to + slot * sizeof(uint16_t), block, sizeof(uint16_t));
      if (task.values) {
        for (size_t k = 0; k < kBlock; k += 16) {
          __builtin_memcpy(to + kScales + (k + slot) * 16, numbers + k, 16);
        }
      } else {
        for (size_t k = 0; k < kBlock; ++k) to[kScales + k * kPageTokens + slot] = numbers[k];
      }
    }
  }
}

}  // namespace
}  // namespace split::SPLIT_ISA
