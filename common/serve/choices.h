// The choices of one answer, several at once: each on a thread of its own, as far as the server has
// spare ones, so that their rows share steps. Knows no text.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/error.h"

namespace split::serve {

// Threads that all answers of a server may take beside their own. Any thread.
class SpareThreads {
 public:
  explicit SpareThreads(size_t count) : left_(count) {}
  size_t take(size_t wanted);  // at most as many as are free
  void give_back(size_t count);

 private:
  std::mutex mutex_;
  size_t left_;
};

class Choices {
 public:
  // `spare` may be null: one choice after the other.
  explicit Choices(SpareThreads* spare) : spare_(spare) {}

  // kGoOn: it has ended, the next may begin. kStop: nothing more is wanted. kPause: all wait until
  // the reader has taken something.
  enum class Next : uint8_t { kGoOn, kStop, kPause };
  using One = std::function<Next(size_t index)>;

  // Calls one(index) for each of `count`, in their order, as many at once as there are threads;
  // none begins after one that returned anything but kGoOn or threw. Throws the first error once
  // all have returned; calls `on_error` before, to end the others.
  void run(size_t count, const One& one, const std::function<void()>& on_error);

  // Called within one: calls `call`, and again each time Error(kBusy) refuses it room that other
  // choices hold, once they have freed some. Returns false if those pause first: try later.
  bool retried(const std::function<void()>& call);

 private:
  void work(const One& one, const std::function<void()>& on_error);
  struct Beside {
    size_t running, begun;
  };
  Beside beside();
  bool wait_for_others(const Beside& before);
  bool paused();

  SpareThreads* const spare_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable ended_;
  size_t next_ = 0, count_ = 0;
  size_t running_ = 0;   // choices that hold something
  size_t begun_ = 0;     // how often a choice began to
  size_t finished_ = 0;  // choices that hold nothing any more
  bool stopped_ = false, paused_ = false;
  std::exception_ptr error_;
};

}  // namespace split::serve
