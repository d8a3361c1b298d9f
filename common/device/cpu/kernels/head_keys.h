// Keys and values of a head where they lie in pages, and widened to floats. For kernels.cpp only,
// as attention.h is.
#pragma once

#include "device/cpu/kernels/ops.h"
#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {
namespace {

constexpr size_t kKeysAtOnce = 16;
static_assert(kKeysAtOnce == kPageTokens);

// Sixteen keys or values of a head (of the task's) in a page, or the first of them as floats.
struct Keys {
  const std::byte* data;
  size_t stride;  // bytes from one to the next
};
template <DType dtype>
inline Keys keys_at(const AttendTask& task, const std::byte* pages, size_t first, size_t head) {
  const size_t channels =
      task.pages[first / kPageTokens] * task.kv_width + task.head_offset + head * task.head_size;
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

// Asks for some bytes of a page. GCC takes a function that does no more than this for one without
// effect and leaves out its calls, hence always_inline.
[[gnu::always_inline]] inline void fetch(const std::byte* from, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}

}  // namespace
}  // namespace split::SPLIT_ISA
