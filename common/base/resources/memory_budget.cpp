#include "base/resources/memory_budget.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/resources/granted.h"

namespace split {

bool MemoryBudget::take(uint64_t bytes) {
  const uint64_t limit = this->limit();
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || used > limit - bytes) {
      refusals_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used + bytes &&
         !peak_.compare_exchange_weak(peak, used + bytes, std::memory_order_relaxed)) {
  }
  return true;
}

void MemoryBudget::give(uint64_t bytes) {
  freed_.fetch_add(bytes, std::memory_order_relaxed);
  const uint64_t left = used_.fetch_sub(bytes, std::memory_order_relaxed) - bytes;
  // The allocator keeps freed memory below used memory. Trims at the end of a burst, and once more
  // when nothing is held, for the last requests' memory.
  const uint64_t worth_it = left == 0 ? 4 << 20 : 32 << 20;
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  if (peak < worth_it || left > peak / 4) return;
  if (peak_.compare_exchange_strong(peak, left, std::memory_order_relaxed)) trim_ = true;
}

void MemoryBudget::trim() {
  const std::lock_guard lock(trims_);
  freed_ = 0;
  return_free_memory();
}

void MemoryBudget::make_room(uint64_t bytes) {
  constexpr uint64_t kWorthIt = 4 << 20;
  const auto kept = [&] {
    const uint64_t freed = freed_.load(std::memory_order_relaxed);
    const uint64_t left = limit() - std::min(limit(), used());
    return freed >= kWorthIt && bytes <= left && freed > left - bytes;
  };
  if (!kept()) return;
  const std::lock_guard lock(trims_);
  if (!kept()) return;  // another thread has returned it
  freed_ = 0;
  return_free_memory();
}

uint64_t memory_left_for_requests(uint64_t reserved, const SystemFiles& files) {
  constexpr uint64_t kLeast = 64 << 20;
  const uint64_t granted = granted_memory(files);
  uint64_t left = granted - granted / 8;
  for (const uint64_t part : {resident_memory(files), reserved}) left -= std::min(left, part);
  return std::max(left, kLeast);
}

MemoryShare::MemoryShare(MemoryShare&& other) noexcept
    : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryShare& MemoryShare::operator=(MemoryShare&& other) noexcept {
  if (this != &other) {
    give_back();
    budget_ = other.budget_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryShare::take(uint64_t bytes) {
  if (budget_ != nullptr) budget_->make_room(bytes);
  if (try_take(bytes)) return;
  throw Error(ErrorKind::kBusy,
              cat("[memory] the requests in work hold ", budget_->used(), " of ", budget_->limit(),
                  " bytes, and this one needs ", bytes, " more: try again later"));
}

bool MemoryShare::try_take(uint64_t bytes) {
  if (budget_ != nullptr && !budget_->take(bytes)) return false;
  bytes_ += bytes;
  return true;
}

void MemoryShare::give_back() {
  if (const uint64_t bytes = std::exchange(bytes_, 0); bytes > 0 && budget_ != nullptr) {
    budget_->give(bytes);
  }
}

}  // namespace split
