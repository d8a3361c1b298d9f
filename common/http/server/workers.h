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

// Any thread; close() once.
class Workers {
 public:
  struct Options {
    size_t keep = 8;    // idle threads that stay
    size_t most = 256;  // threads at most
    size_t queue = 64;  // jobs that wait while all threads are busy
    size_t stack_bytes = 256 << 10;
    std::chrono::milliseconds linger{2000};  // idle time of a thread above `keep`
  };
  explicit Workers(const Options& options) : options_(options) { running_.reserve(options.most); }
  ~Workers() { close(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Returns false if every thread is busy and the queue is full, or no thread can be started. Jobs
  // must not throw.
  bool submit(std::function<void()> job);
  // Runs the queue, then ends all threads and frees their stacks.
  void close();
  size_t threads() const;

 private:
  static void* enter(void* self);
  void work();
  bool start_thread();  // call with the lock held
  // Ends an idle thread; releases the lock.
  void retire(std::unique_lock<std::mutex>& lock);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<pthread_t> running_;
  std::optional<pthread_t> retired_;  // the last retired one, to be joined
  size_t idle_ = 0;
  bool closed_ = false;
};

}  // namespace split::http
