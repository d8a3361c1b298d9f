// Writes weights into memory that the host sees, beside the thread that loads: one job after the
// other, each in turns that all processors take, so that neither a small weight nor the end of a
// large one leaves any of them idle. Knows no Vulkan.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace split::vulkan {

// Used by one thread at a time.
class WeightWriter {
 public:
  WeightWriter() = default;
  ~WeightWriter();  // after all jobs
  WeightWriter(const WeightWriter&) = delete;
  WeightWriter& operator=(const WeightWriter&) = delete;

  // Bytes [from, from + bytes) of each of `count` units from unit `first` on.
  struct Part {
    size_t first = 0, count = 0, from = 0, bytes = 0;
  };
  // Makes a part at `out`, without gaps. Must not throw.
  using Make = std::function<void(const Part& part, std::byte* out)>;
  // How units are best cut into parts: so many at once, which share what they are made from, and so
  // many bytes of each, or all.
  struct Cut {
    size_t together = 1, bytes = 0;
  };
  struct Job {
    Make make;
    std::byte* out = nullptr;
    size_t unit = 1;              // bytes
    size_t first = 0, count = 0;  // units; unit `first` goes to `out`
    Cut cut;
  };
  // Begins a job, whose number it returns; waits while too much is unfinished. What its `make`
  // reads and `out` stay until done().
  uint64_t begin(Job job);
  bool done(uint64_t job) const { return job <= done_.load(std::memory_order_acquire); }
  uint64_t begun() const { return begun_; }  // the last one
  // For this job and those before it. Takes part in the work.
  void wait(uint64_t job);
  void wait() { wait(begun_); }  // for all

 private:
  struct Open : Job {
    size_t taken = 0, made = 0;  // units
  };
  void start();
  bool take_turn(std::unique_lock<std::mutex>& lock);
  void work();

  uint64_t begun_ = 0;             // jobs, numbered from 1
  std::atomic<uint64_t> done_{0};  // the last of those before the first unfinished one
  std::vector<std::thread> workers_;

  std::mutex mutex_;  // guards all below
  std::condition_variable more_, finished_;
  std::deque<Open> open_;  // jobs done_ + 1 and on
  size_t untaken_ = 0;     // in open_: the first with units that nobody has taken
  size_t bytes_ = 0;       // bytes of open_
  bool stop_ = false;
};

}  // namespace split::vulkan
