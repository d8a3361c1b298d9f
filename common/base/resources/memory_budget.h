// A budget in bytes for what requests hold at once: bodies, parsed JSON, scratch and answers. Taken
// before allocation; a request that finds too little left is told to come back later, so that
// requests together cannot exhaust the process's memory.
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

  // Returns false, and counts it, if fewer bytes are left.
  bool take(uint64_t bytes);
  // Gives bytes back, after they were freed.
  void give(uint64_t bytes);
  // Returns true once after much use, when free memory should return to the system. A caller that
  // cannot trim now calls trim_later().
  bool trim_is_due() { return trim_.load(std::memory_order_relaxed) && trim_.exchange(false); }
  void trim_later() { trim_ = true; }
  // Returns free memory to the system. Takes milliseconds.
  void trim();
  // Returns memory to the system first, if what the allocator may have kept since then and `bytes`
  // exceed what is left.
  void make_room(uint64_t bytes);

  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Sets the limit; existing shares keep theirs.
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

// A request's part of a budget, given back by the destructor. One thread at a time.
class MemoryShare {
 public:
  MemoryShare() = default;  // without a budget: takes anything
  explicit MemoryShare(MemoryBudget* budget) : budget_(budget) {}
  ~MemoryShare() { give_back(); }
  MemoryShare(MemoryShare&& other) noexcept;
  MemoryShare& operator=(MemoryShare&& other) noexcept;

  // Throws Error(kBusy) if the budget has less. May first return memory to the system, which takes
  // milliseconds.
  void take(uint64_t bytes);
  // Takes the bytes at once; returns false if the budget has less.
  bool try_take(uint64_t bytes);
  void give_back();
  uint64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace split
