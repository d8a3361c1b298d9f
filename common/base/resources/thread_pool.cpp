#include "base/resources/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/resources/fibres.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"

namespace split {
namespace {

// Long enough to span the serial part between two kernels, short enough that a preempted thread is
// not starved by its spinning sibling on a busy machine.
constexpr int kSpinsBeforeYield = 2000;

// In a tab, whose clock costs as much as a small task: fewer than a turn's time.
constexpr size_t kTasksOfATurn = 8;

constexpr uint64_t share_of(size_t next, size_t end) { return uint64_t{end} << 32 | next; }

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// With fewer threads than wanted, the others take over the missing ones' shares.
ThreadPool::ThreadPool(unsigned threads) : shares_(threads > 0 ? threads : granted_processors()) {
  start_some(workers_, shares_.size() - 1, [this](size_t i) { work(i + 1); });
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

std::optional<size_t> ThreadPool::take(Share& share, Side side) {
  uint64_t state = share.state.load(std::memory_order_acquire);
  for (;;) {
    const size_t next = state & UINT32_MAX, end = state >> 32;
    if (next == end) return {};
    const bool first = side == Side::kFirst;
    const uint64_t left = first ? share_of(next + 1, end) : share_of(next, end - 1);
    // A success means that the task belongs to the share's present job, even if the state was read
    // in an earlier one.
    if (share.state.compare_exchange_weak(state, left, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      return first ? next : end - 1;
    }
  }
}

void ThreadPool::run_task(size_t task) {
  try {
    (*task_.load(std::memory_order_relaxed))(task);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::run_some(size_t self) {
  size_t ran = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[(self + i) % shares_.size()];
    while (const std::optional<size_t> task = take(share, i == 0 ? Side::kFirst : Side::kLast)) {
      run_task(*task);
      ++ran;
    }
  }
  if (ran > 0) done_.fetch_add(ran, std::memory_order_release);
}

void ThreadPool::run(size_t count, const std::function<void(size_t)>& task) {
  if (workers_.empty() || count <= 1) {
    for (size_t i = 0; i < count; ++i) {
      task(i);
      if (i % kTasksOfATurn == kTasksOfATurn - 1) fibres::yield();
    }
    return;
  }
  CHECK(count <= UINT32_MAX);
  const bool in_step = spinning_.load() > 0;
  if (!in_step) begin_step();
  task_.store(&task, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const size_t threads = shares_.size();
  for (size_t i = 0; i < threads; ++i) {
    shares_[i].state.store(share_of(i * count / threads, (i + 1) * count / threads),
                           std::memory_order_release);
  }
  job_.fetch_add(1, std::memory_order_release);
  run_some(0);
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

void ThreadPool::work(size_t self) {
  uint64_t last = 0;
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (const uint64_t job = job_.load(std::memory_order_acquire); job != last) {
      last = job;
      run_some(self);
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
