// A mutex whose waiters come in the order in which they began to wait, so that one that is taken
// again and again, a moment after it was let go, keeps nobody out.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/resources/fibres.h"

namespace split {

// For std::lock_guard. Taken by nobody, it costs two additions.
class Turns {
 public:
  void lock() {
    const uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t now; (now = served_.load(std::memory_order_acquire)) != mine;)
      fibres::wait(served_, now);
  }
  void unlock() {
    served_.fetch_add(1, std::memory_order_release);
    fibres::wake_all(served_);
  }

 private:
  std::atomic<uint32_t> next_{0}, served_{0};
};

}  // namespace split
