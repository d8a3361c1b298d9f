#include "serve/choices.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/resources/threads.h"
#include "run/batcher.h"

namespace split::serve {
namespace {

constexpr size_t kMostAtOnce = 32;  // for one answer

}  // namespace

size_t SpareThreads::take(size_t wanted) {
  const std::lock_guard lock(mutex_);
  const size_t taken = std::min(wanted, left_);
  left_ -= taken;
  return taken;
}

void SpareThreads::give_back(size_t count) {
  const std::lock_guard lock(mutex_);
  left_ += count;
}

void Choices::run(size_t count, const One& one, const std::function<void()>& on_error) {
  count_ = count;
  next_ = 0;
  stopped_ = paused_ = false;
  error_ = nullptr;
  const size_t wanted = std::min(count, kMostAtOnce) - std::min<size_t>(count, 1);
  const size_t more = spare_ == nullptr ? 0 : spare_->take(wanted);
  std::vector<std::thread> threads;
  start_some(threads, more, [&](size_t) { work(one, on_error); });
  work(one, on_error);
  for (std::thread& thread : threads) thread.join();
  if (more > 0) spare_->give_back(more);
  if (error_) std::rethrow_exception(error_);
}

void Choices::work(const One& one, const std::function<void()>& on_error) {
  std::unique_lock lock(mutex_);
  while (!stopped_ && next_ < count_) {
    const size_t index = next_++;
    ++running_;
    ++begun_;
    lock.unlock();
    Next next = Next::kStop;
    std::exception_ptr error;
    try {
      next = one(index);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --running_;
    ++finished_;
    if (error && !stopped_) {
      error_ = error;
      on_error();
    }
    stopped_ = stopped_ || next != Next::kGoOn;
    paused_ = paused_ || next == Next::kPause;
    ended_.notify_all();
  }
}

Choices::Beside Choices::beside() {
  const std::lock_guard lock(mutex_);
  return {running_, begun_};
}

bool Choices::paused() {
  const std::lock_guard lock(mutex_);
  return paused_;
}

bool Choices::retried(const std::function<void()>& call) {
  for (;;) {
    const Beside before = beside();
    try {
      call();
      return true;
    } catch (const RequesterGone&) {
      throw;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBusy) throw;
      if (wait_for_others(before)) continue;
      if (paused()) return false;
      throw;
    }
  }
}

// Waits for room after a refusal. Among choices without room the last one goes on, and the others
// when it has ended. Returns false if no other choice ran, which could free any.
bool Choices::wait_for_others(const Beside& before) {
  std::unique_lock lock(mutex_);
  if (stopped_ || (before.running == 1 && before.begun == begun_)) return false;
  if (running_ == 1) return true;
  --running_;
  const size_t finished = finished_;
  ended_.wait(lock, [&] { return stopped_ || finished_ > finished; });
  ++running_;
  ++begun_;
  return !stopped_;
}

}  // namespace split::serve
