#include "device/vulkan/runtime/weight_writer.h"

#include <algorithm>
#include <cstring>

#include "base/resources/granted.h"
#include "base/resources/threads.h"

namespace split::vulkan {
namespace {

constexpr unsigned kMostWorkers = 15;
constexpr size_t kAheadBytes = size_t{256} << 20;  // unfinished: what is read for them stays, too
constexpr size_t kTurnBytes = size_t{512} << 10;   // taken by a thread at a time
constexpr size_t kMakeBytes = size_t{64} << 10;    // part made at a time, about: stays in L2

}  // namespace

WeightWriter::~WeightWriter() {
  wait();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// One processor is left to the thread that loads, which has its own work. Where the system has
// fewer threads, those there are, and who waits, do it.
void WeightWriter::start() {
  const unsigned processors = std::max(granted_processors(), 2u);
  start_some(workers_, std::min(processors - 1, kMostWorkers), [this](size_t) { work(); });
}

uint64_t WeightWriter::begin(Job job) {
  const size_t bytes = job.unit * job.count;
  std::unique_lock lock(mutex_);
  if (bytes == 0) return 0;
  while (bytes_ > kAheadBytes) {
    if (!take_turn(lock)) finished_.wait(lock);
  }
  open_.push_back({std::move(job)});
  bytes_ += bytes;
  ++begun_;
  lock.unlock();
  if (workers_.empty()) start();
  more_.notify_all();
  return begun_;
}

void WeightWriter::wait(uint64_t job) {
  if (done(job)) return;
  std::unique_lock lock(mutex_);
  while (!done(job)) {
    if (!take_turn(lock)) finished_.wait(lock);
  }
}

// Makes the next units, unlocked; false when there are none. Each part is made in the thread's
// cache, then copied: what is mapped may be write-combined and is written in order only.
bool WeightWriter::take_turn(std::unique_lock<std::mutex>& lock) {
  if (untaken_ == open_.size()) return false;
  Open& job = open_[untaken_];
  const size_t bytes = job.cut.bytes == 0 ? job.unit : std::min(job.cut.bytes, job.unit);
  const auto whole = [&](size_t most, size_t unit) {
    return std::max<size_t>(most / unit / job.cut.together, 1) * job.cut.together;
  };
  const size_t each = whole(kMakeBytes, bytes), begin = job.taken;
  const size_t end = std::min(job.count, begin + whole(kTurnBytes, job.unit));
  job.taken = end;
  if (end == job.count) ++untaken_;
  lock.unlock();
  thread_local std::vector<std::byte> made;
  for (size_t at = begin; at < end; at += each) {
    for (size_t from = 0; from < job.unit; from += bytes) {
      const Part part{job.first + at, std::min(each, end - at), from,
                      std::min(bytes, job.unit - from)};
      made.resize(std::max(made.size(), part.count * part.bytes));
      job.make(part, made.data());
      std::byte* const out = job.out + at * job.unit + from;
      const bool gaps = part.bytes < job.unit;
      const size_t copies = gaps ? part.count : 1;
      const size_t length = gaps ? part.bytes : part.count * job.unit;
      for (size_t i = 0; i < copies; ++i) {
        std::memcpy(out + i * job.unit, made.data() + i * length, length);
      }
    }
  }
  lock.lock();
  job.made += end - begin;
  const size_t before = open_.size();
  while (!open_.empty() && open_.front().made == open_.front().count) {
    bytes_ -= open_.front().unit * open_.front().count;
    open_.pop_front();
    --untaken_;
    done_.fetch_add(1, std::memory_order_release);
  }
  if (open_.size() < before) finished_.notify_all();
  return true;
}

void WeightWriter::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!take_turn(lock)) more_.wait(lock);
  }
}

}  // namespace split::vulkan
