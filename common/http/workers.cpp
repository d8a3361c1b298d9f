#include "http/workers.h"

#include <algorithm>

namespace split::http {

bool Workers::submit(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  // Jobs already queued have idle threads on their way to them.
  if (idle_ <= jobs_.size()) {
    const bool started = threads_ < options_.most && start_thread();
    if (!started && (threads_ == 0 || jobs_.size() >= idle_ + options_.queue)) return false;
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
  stack = std::max<size_t>(stack, 4 << 20);  // their frames are several times larger
#endif
  pthread_attr_setstacksize(&attributes, stack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, enter, this) == 0;
  pthread_attr_destroy(&attributes);
  if (started) {
    ++threads_;
    ++idle_;  // on its way: counts as one that will take a job
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
      if (threads_ <= options_.keep) {
        wake_.wait(lock);
      } else if (wake_.wait_for(lock, options_.linger) == std::cv_status::timeout &&
                 jobs_.empty() && threads_ > options_.keep) {
        break;
      }
    }
    if (jobs_.empty()) break;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++idle_;
  }
  --idle_;
  --threads_;
  gone_.notify_all();  // under the lock: `this` may be destroyed as soon as it is released
}

void Workers::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  wake_.notify_all();
  gone_.wait(lock, [&] { return threads_ == 0; });
}

size_t Workers::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

}  // namespace split::http
