// Threads that grow with the requests in flight and shrink when there are none: a handler may block
// on a model step, so each request in flight has a thread, and small stacks make a few hundred of
// them cheap.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace split::http {

// Every function may be called from any thread, close() once.
class Workers {
 public:
  struct Options {
    size_t keep = 8;    // threads that stay when idle
    size_t most = 256;  // threads at most
    size_t queue = 64;  // jobs that wait when all are busy
    size_t stack_bytes = 256 << 10;
    std::chrono::milliseconds linger{2000};  // how long a thread above `keep` stays idle
  };
  explicit Workers(const Options& options) : options_(options) { running_.reserve(options.most); }
  ~Workers() { close(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False when every thread is busy and the queue is full, or no thread can be started. Jobs must
  // not throw.
  bool submit(std::function<void()> job);
  // Runs what is queued, then ends all threads: with what they keep for themselves, too.
  void close();
  size_t threads() const;

 private:
  static void* enter(void* self);
  void work();
  bool start_thread();  // under the lock
  // The last that an idle thread does; lets go of the lock.
  void retire(std::unique_lock<std::mutex>& lock);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<pthread_t> running_;
  std::optional<pthread_t> retired_;  // the last one, to be joined
  size_t idle_ = 0;
  bool closed_ = false;
};

}  // namespace split::http
