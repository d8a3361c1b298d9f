// One budget in bytes for what requests hold at once: bodies, parsed JSON, scratch and answers. It
// is taken before it is allocated; a request that finds too little left is told to come back later,
// so that requests together cannot end the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace split {

// Any thread.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit = UINT64_MAX) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // False, and counted, where that many bytes are not left.
  bool take(uint64_t bytes);
  // Gives back what was taken: free it first.
  void give(uint64_t bytes);
  // True once after much use, when what is free by then should return to the system. Whoever cannot
  // do it now says so.
  bool trim_is_due() { return trim_.load(std::memory_order_relaxed) && trim_.exchange(false); }
  void trim_later() { trim_ = true; }
  // Returns it. Takes milliseconds.
  void trim();
  // The allocator may keep all that was given back since then: where that and `bytes` are more than
  // is left, it goes back to the system first.
  void make_room(uint64_t bytes);

  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Shares keep what they have taken.
  void set_limit(uint64_t limit) { limit_.store(limit, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> peak_{0};   // since trim_ was last set
  std::atomic<uint64_t> freed_{0};  // since memory last went back to the system
  std::atomic<bool> trim_{false};
  std::mutex trims_;
  std::atomic<uint64_t> refusals_{0};
};

// A request's part of a budget, given back at its end. One thread at a time.
class MemoryShare {
 public:
  MemoryShare() = default;  // of no budget: takes anything
  explicit MemoryShare(MemoryBudget* budget) : budget_(budget) {}
  ~MemoryShare() { give_back(); }
  MemoryShare(MemoryShare&& other) noexcept;
  MemoryShare& operator=(MemoryShare&& other) noexcept;

  // Throws Error(kBusy) where the budget has no more. Makes room for them, which may take
  // milliseconds.
  void take(uint64_t bytes);
  // Takes them at once, or says false where the budget has no more.
  bool try_take(uint64_t bytes);
  void give_back();
  uint64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace split
