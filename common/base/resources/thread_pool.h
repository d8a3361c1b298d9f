// A fixed pool for the kernels of one step. Workers spin only between begin() and end() of a step,
// where the next kernel follows within microseconds, and sleep on a futex otherwise: OpenMP's
// barriers cost 8 ms at p99 on two busy cores (measured), and a pool that always spins burns a core
// for nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace split {

// Used by one thread at a time, the one that runs the step; it takes part in the work itself.
class ThreadPool {
 public:
  // `threads` includes the caller: 1 starts no thread, 0 means one per processor. The pool is
  // smaller if the system has no more threads.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Workers spin for work between the two. Calls nest.
  void begin_step();
  void end_step();

  // Calls task(i) once for each i in [0, count), on any thread, and returns when all have returned.
  // Throws the first exception of a task, after the others have ended. Works outside a step too,
  // more slowly.
  void run(size_t count, const std::function<void(size_t)>& task);

  class Step {
   public:
    explicit Step(ThreadPool& pool) : pool_(pool) { pool_.begin_step(); }
    ~Step() { pool_.end_step(); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    ThreadPool& pool_;
  };

 private:
  // Tasks [next, end) left in a thread's share of the job: `end` in the upper half, `next` in the
  // lower. The owner takes the first, so that it reads on where it was; a thread without tasks of
  // its own takes the last. So others run what a preempted thread has not begun, and one that wakes
  // late sees a finished job.
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};
  };
  enum class Side : uint8_t { kFirst, kLast };

  void work(size_t self);
  void end();

  // Runs tasks of the current job until no thread has any left.
  void run_some(size_t self);
  void run_task(size_t task);
  // Takes a task from a share; nullopt if none is left.
  static std::optional<size_t> take(Share& share, Side side);

  std::vector<std::thread> workers_;
  std::vector<Share> shares_;     // the caller's, then the workers'
  std::atomic<uint64_t> job_{0};  // job number: a worker looks for tasks once in each
  std::atomic<const std::function<void(size_t)>*> task_{
      nullptr};  // stable while a claimed task runs
  std::atomic<size_t> done_{0};
  std::atomic<int> spinning_{0};  // depth of begin_step()
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr error_;  // the current job's
};

}  // namespace split
