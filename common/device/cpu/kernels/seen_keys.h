// The rows of an attention that see a split of its keys, which keys each sees, and keys as floats.
// For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/ops.h"
#include "device/cpu/kernels/vec.h"

namespace split::SPLIT_ISA {
namespace {

// Keys of a split, counted from its first: [from, to); both 0: none.
struct SeenKeys {
  size_t from = 0, to = 0;
};

// The queries of a head of keys: a group for each row.
inline size_t queries_of(const AttendTask& task) { return task.rows * task.group; }
// Calls each(lane, offset of its query in task.q, offset of its result in task.out) for the queries
// of all heads, a head's side by side.
template <typename Each>
inline void for_each_lane(const AttendTask& task, const Each& each) {
  size_t lane = 0;
  for (size_t head = 0; head < task.heads; ++head) {
    for (size_t row = 0; row < task.rows; ++row) {
      for (size_t i = 0; i < task.group; ++i, ++lane) {
        const size_t column = (head * task.group + i) * task.head_size;
        each(lane, row * task.q_stride + column, row * task.out_stride + column);
      }
    }
  }
}

// The split whose first key is `first`, which is before the last row's end.
struct SeenSplit {
  SeenSplit(const AttendTask& task, size_t first) : row1(task.rows) {
    while (task.seen[row0].end <= first) ++row0;
    while (row1 > row0 && task.seen[row1 - 1].first >= first + kSplitKeys) --row1;
    row0 *= task.group, row1 *= task.group;
    for (size_t r = row0; r < row1; ++r) {
      const KeyRange& seen = task.seen[r / task.group];
      begins[r] = seen.first >= first;
      keys[r].from = begins[r] ? seen.first - first : 0;
      keys[r].to = seen.end - first < kSplitKeys ? seen.end - first : kSplitKeys;
    }
  }
  bool empty() const { return row0 == row1; }
  bool sees(size_t row) const { return row >= row0 && row < row1; }
  size_t from() const { return keys[row0].from; }
  size_t to() const { return keys[row1 - 1].to; }
  // Whether no row has seen a key before: the split's result is then that of all splits so far.
  bool first_of_all() const { return row0 == 0 && begins[0]; }

  // A head's queries, here rows, see some of it from row0 to row1, and row r keys[r].
  size_t row0 = 0, row1;
  SeenKeys keys[kAttendRows];
  bool begins[kAttendRows] = {};  // it is the first that the row sees
};

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
