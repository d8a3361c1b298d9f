#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace split {
namespace {

// Long enough to span the serial part between two kernels, short enough that a preempted thread is
// not starved by its spinning sibling on a busy machine.
constexpr int kSpinsBeforeYield = 2000;

constexpr unsigned kFieldBits = 20;
constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  try {
    workers_.reserve(threads);
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // no room for one more
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::begin_step() {
  if (workers_.empty() || spinning_.fetch_add(1) > 0) return;
  // The lock orders this with a worker that is about to sleep.
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

void ThreadPool::end_step() {
  if (!workers_.empty()) spinning_.fetch_sub(1);
}

bool ThreadPool::run_one() {
  uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if ((state & kFieldMask) >= ((state >> kFieldBits) & kFieldMask)) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
  try {
    (*task_.load(std::memory_order_relaxed))(state & kFieldMask);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void ThreadPool::run(size_t count, const std::function<void(size_t)>& task) {
  if (workers_.empty() || count <= 1) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  CHECK(count <= kFieldMask);
  const bool in_step = spinning_.load() > 0;
  if (!in_step) begin_step();
  task_.store(&task, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (state_.load(std::memory_order_relaxed) >> (2 * kFieldBits)) + 1;
  state_.store(generation << (2 * kFieldBits) | uint64_t{count} << kFieldBits,
               std::memory_order_release);
  while (run_one()) {
  }
  for (int spins = 0; done_.load(std::memory_order_acquire) != count; ++spins) {
    if (spins < kSpinsBeforeYield) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
  if (!in_step) end_step();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work() {
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (run_one()) {
      spins = 0;
    } else if (spinning_.load(std::memory_order_relaxed) == 0) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || spinning_.load() > 0; });
    } else if (++spins < kSpinsBeforeYield) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace split
