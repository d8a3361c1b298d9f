// The rows of an attention that see a split of its sequence's keys, and the keys that each sees.
// For kernels.cpp only, which is compiled once for each instruction set.
#pragma once

#include "device/cpu/kernels/kernels.h"

namespace split::SPLIT_ISA {
namespace {

// Keys of a split, counted from its first: [from, to), none where both are 0.
struct SeenKeys {
  size_t from = 0, to = 0;
};

// The queries of a head of keys: of each row a group.
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

}  // namespace
}  // namespace split::SPLIT_ISA
