// The memory that the programs of a shard share on the CPU: the arena, rounded rows for a product,
// and each thread's scratch.
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/bf16_temporaries.h"
#include "device/cpu/cpu_buffer.h"

namespace split {

// This thread's scratch, on a cache line: grows to the largest step's needs, then stays.
inline float* thread_scratch(size_t floats) {
  struct alignas(64) Line {
    float values[16];
  };
  thread_local std::vector<Line> scratch;
  const size_t lines = (floats + 15) / 16;
  if (scratch.size() < lines) scratch.resize(lines);
  return scratch.data()->values;
}

class CpuWorkspace : public Workspace {
 public:
  explicit CpuWorkspace(const Limits& limits)
      : limits_(limits), arena_(limits.arena_row_bytes * limits.most_rows()) {}
  const Limits& limits() const { return limits_; }
  std::byte* arena() const { return arena_.data(); }

  // Makes room for the rows of a product by `inner` rows of a matrix, rounded. Moves old contents.
  void reserve_rounded(int buffer, size_t inner) {
    const size_t bytes = rounded_bytes((limits_.most_rows() + 15) / 16 * 16, inner, kMostRounded);
    std::unique_ptr<CpuBuffer>& rounded = rounded_[buffer];
    if (rounded == nullptr || rounded->size() < bytes) {
      rounded = std::make_unique<CpuBuffer>(bytes);
    }
  }
  std::byte* rounded(int buffer) const { return rounded_[buffer]->data(); }
  static constexpr int kPresent = kRoundedBuffers;  // rows rounded for one product

 private:
  Limits limits_;
  CpuBuffer arena_;
  std::unique_ptr<CpuBuffer> rounded_[kRoundedBuffers + 1];
};

}  // namespace split
