// A mutex with a rank. A thread takes them by rising rank alone, so that no threads wait for each
// other in a circle. Builds with SPLIT_LOCK_ORDER (Debug ones, and those with sanitizers) check
// that at each lock; in others it is a std::mutex.
#pragma once

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>

#include "base/error.h"

namespace split {

template <bool kChecked>
struct LockRank {
  explicit LockRank(int /*rank*/) {}
  void take() const {}
  void give() const {}
};

// Keeps the ranks that each thread holds.
template <>
struct LockRank<true> {
  explicit LockRank(int rank) : rank(rank) {}
  // Throws std::logic_error if the thread holds this rank or a higher one.
  void take() const {
    const auto end = held.begin() + count;
    if (const auto high = std::max_element(held.begin(), end); high != end && *high >= rank) {
      throw std::logic_error(cat("lock ", rank, " is taken by a thread that holds ", *high));
    }
    held.at(count++) = rank;
  }
  void give() const {
    const auto end = held.begin() + count--;
    std::copy(std::find(held.begin(), end, rank) + 1, end, std::find(held.begin(), end, rank));
  }
  int rank;
  static inline thread_local std::array<int, 16> held;
  static inline thread_local size_t count = 0;
};

template <bool kChecked>
class RankedMutex : std::mutex, LockRank<kChecked> {
 public:
  template <typename Rank>
  explicit RankedMutex(Rank rank) : LockRank<kChecked>(static_cast<int>(rank)) {}
  void lock() {
    this->take();
    std::mutex::lock();
  }
  void unlock() {
    std::mutex::unlock();
    this->give();
  }

  // Holds it; its rank also while a std::condition_variable lets it go.
  class Lock : public std::unique_lock<std::mutex> {
   public:
    explicit Lock(RankedMutex& mutex)
        : std::unique_lock<std::mutex>(mutex, std::defer_lock), mutex_(mutex) {
      lock();
    }
    ~Lock() {
      if (owns_lock()) unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    void lock() {
      mutex_.take();
      std::unique_lock<std::mutex>::lock();
    }
    void unlock() {
      std::unique_lock<std::mutex>::unlock();
      mutex_.give();
    }

   private:
    RankedMutex& mutex_;
  };
};

}  // namespace split
