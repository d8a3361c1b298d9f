#include "http/server/workers.h"

#include <algorithm>
#include <utility>

namespace split::http {

bool Workers::submit(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  // Queued jobs have idle threads on their way.
  if (idle_ <= jobs_.size()) {
    const bool started = running_.size() < options_.most && start_thread();
    if (!started && (running_.empty() || jobs_.size() >= idle_ + options_.queue)) return false;
  }
  jobs_.push_back(std::move(job));
  wake_.notify_one();
  return true;
}

bool Workers::start_thread() {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  size_t stack = options_.stack_bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  stack = std::max<size_t>(stack, 4 << 20);  // sanitizers' frames are several times larger
#endif
  pthread_attr_setstacksize(&attributes, stack);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, enter, this) == 0;
  pthread_attr_destroy(&attributes);
  if (started) {
    running_.push_back(thread);
    ++idle_;  // counts as idle while on its way to a job
  }
  return started;
}

void* Workers::enter(void* self) {
  static_cast<Workers*>(self)->work();
  return nullptr;
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (jobs_.empty() && !closed_) {
      if (running_.size() <= options_.keep) {
        wake_.wait(lock);
      } else if (wake_.wait_for(lock, options_.linger) == std::cv_status::timeout &&
                 jobs_.empty() && !closed_ && running_.size() > options_.keep) {
        return retire(lock);
      }
    }
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++idle_;
  }
}

void Workers::retire(std::unique_lock<std::mutex>& lock) {
  --idle_;
  const pthread_t self = pthread_self();
  std::erase_if(running_, [&](pthread_t thread) { return pthread_equal(thread, self) != 0; });
  // The previous one has left work(): frees its stack; this one's goes with the next.
  const auto before = std::exchange(retired_, self);
  // Without the lock, which the loop takes for each request: ending a thread may take a while.
  lock.unlock();
  if (before) pthread_join(*before, nullptr);
}

void Workers::close() {
  std::vector<pthread_t> all;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_all();
    all = running_;
    if (retired_) all.push_back(*retired_);
    retired_.reset();
  }
  for (const pthread_t thread : all) pthread_join(thread, nullptr);
  const std::lock_guard lock(mutex_);
  running_.clear();
}

size_t Workers::threads() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

}  // namespace split::http
