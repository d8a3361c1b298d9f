// Threads of a tab: mutex, condition_variable and thread as in the standard, which Debian's C++
// library for WebAssembly lacks. A thread is a fibre with a stack of its own; the running one keeps
// the processor until it waits. Included before every source of the tab, and by nothing else.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

namespace split::fibres {

// Milliseconds of the steady clock at which a wait ends; kForever: only when woken.
inline constexpr double kForever = -1;

// Suspends this fibre until `key` is woken; returns false if the time came first.
bool block(const void* key, double until_ms = kForever);
// Wakes the fibres that wait for the key: the first one, or all.
void wake(const void* key, bool all);
// Starts a fibre, which runs once this one waits.
void start(std::function<void()> run);
uint64_t current();  // number of this fibre; 0: none

template <typename Clock, typename Duration>
double ms_of(const std::chrono::time_point<Clock, Duration>& time) {
  const auto left = time - Clock::now();
  const auto end = std::chrono::steady_clock::now() + left;
  return std::chrono::duration<double, std::milli>(end.time_since_epoch()).count();
}

}  // namespace split::fibres

namespace std {

class mutex {
 public:
  constexpr mutex() = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;
  void lock() {
    while (held_) {
      ++waiting_;
      split::fibres::block(this);
      --waiting_;
    }
    held_ = true;
  }
  bool try_lock() { return !std::exchange(held_, true); }
  void unlock() {
    held_ = false;
    if (waiting_ > 0) split::fibres::wake(this, false);
  }

 private:
  bool held_ = false;
  uint32_t waiting_ = 0;
};

template <typename Mutex>
class unique_lock {
 public:
  using mutex_type = Mutex;
  unique_lock() = default;
  explicit unique_lock(Mutex& mutex) : mutex_(&mutex) { lock(); }
  unique_lock(Mutex& mutex, defer_lock_t) : mutex_(&mutex) {}
  unique_lock(Mutex& mutex, adopt_lock_t) : mutex_(&mutex), owns_(true) {}
  unique_lock(Mutex& mutex, try_to_lock_t) : mutex_(&mutex), owns_(mutex.try_lock()) {}
  unique_lock(unique_lock&& other) noexcept
      : mutex_(std::exchange(other.mutex_, nullptr)), owns_(std::exchange(other.owns_, false)) {}
  unique_lock& operator=(unique_lock&& other) noexcept {
    if (owns_) unlock();
    mutex_ = std::exchange(other.mutex_, nullptr);
    owns_ = std::exchange(other.owns_, false);
    return *this;
  }
  ~unique_lock() {
    if (owns_) unlock();
  }
  void lock() {
    mutex_->lock();
    owns_ = true;
  }
  bool try_lock() { return owns_ = mutex_->try_lock(); }
  void unlock() {
    owns_ = false;
    mutex_->unlock();
  }
  bool owns_lock() const { return owns_; }
  explicit operator bool() const { return owns_; }
  Mutex* mutex() const { return mutex_; }

 private:
  Mutex* mutex_ = nullptr;
  bool owns_ = false;
};

enum class cv_status { no_timeout, timeout };

class condition_variable {
 public:
  condition_variable() = default;
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;
  void notify_one() { split::fibres::wake(this, false); }
  void notify_all() { split::fibres::wake(this, true); }

  template <typename Lock>
  void wait(Lock& lock) {
    wait_ms(lock, split::fibres::kForever);
  }
  template <typename Lock, typename Predicate>
  void wait(Lock& lock, Predicate predicate) {
    while (!predicate()) wait(lock);
  }
  template <typename Lock, typename Clock, typename Duration>
  cv_status wait_until(Lock& lock, const chrono::time_point<Clock, Duration>& time) {
    const bool woken = wait_ms(lock, split::fibres::ms_of(time));
    return woken ? cv_status::no_timeout : cv_status::timeout;
  }
  template <typename Lock, typename Clock, typename Duration, typename Predicate>
  bool wait_until(Lock& lock, const chrono::time_point<Clock, Duration>& time,
                  Predicate predicate) {
    // The largest time stands for "for ever", and no difference to it can be computed.
    const bool ever = time == chrono::time_point<Clock, Duration>::max();
    while (!predicate()) {
      const double until = ever ? split::fibres::kForever : split::fibres::ms_of(time);
      if (!wait_ms(lock, until)) return predicate();
    }
    return true;
  }
  template <typename Lock, typename Rep, typename Period>
  cv_status wait_for(Lock& lock, const chrono::duration<Rep, Period>& time) {
    return wait_until(lock, chrono::steady_clock::now() + time);
  }
  template <typename Lock, typename Rep, typename Period, typename Predicate>
  bool wait_for(Lock& lock, const chrono::duration<Rep, Period>& time, Predicate predicate) {
    return wait_until(lock, chrono::steady_clock::now() + time, std::move(predicate));
  }

 private:
  template <typename Lock>
  bool wait_ms(Lock& lock, double until) {
    lock.unlock();
    const bool woken = split::fibres::block(this, until);
    lock.lock();
    return woken;
  }
};

class thread {
 public:
  class id {
   public:
    auto operator<=>(const id&) const = default;
    uint64_t number = 0;
  };
  thread() = default;
  template <typename Run, typename... Arguments>
  requires(!is_same_v<remove_cvref_t<Run>, thread>) explicit thread(Run&& run,
                                                                    Arguments&&... arguments)
      : state_(make_shared<State>()) {
    // std::function copies its target, which may be move-only.
    auto call = make_shared<tuple<decay_t<Run>, decay_t<Arguments>...>>(
        std::forward<Run>(run), std::forward<Arguments>(arguments)...);
    split::fibres::start([state = state_, call]() mutable {
      state->number = split::fibres::current();
      std::apply(
          [](auto& what, auto&... with) { std::invoke(std::move(what), std::move(with)...); },
          *call);
      call.reset();
      state->done = true;
      split::fibres::wake(state.get(), true);
    });
  }
  thread(thread&&) noexcept = default;
  thread& operator=(thread&& other) noexcept {
    if (joinable()) std::terminate();
    state_ = std::move(other.state_);
    return *this;
  }
  ~thread() {
    if (joinable()) std::terminate();
  }
  bool joinable() const { return state_ != nullptr; }
  void join() {
    while (!state_->done) split::fibres::block(state_.get());
    state_.reset();
  }
  void detach() { state_.reset(); }
  id get_id() const { return {state_ ? state_->number : 0}; }
  static unsigned hardware_concurrency() { return 1; }

 private:
  struct State {
    bool done = false;
    uint64_t number = 0;
  };
  shared_ptr<State> state_;
};

namespace this_thread {
inline thread::id get_id() { return {split::fibres::current()}; }
void yield();
template <typename Rep, typename Period>
void sleep_for(const chrono::duration<Rep, Period>& time) {
  const char key = 0;  // nobody else waits for this address
  split::fibres::block(&key, split::fibres::ms_of(chrono::steady_clock::now() + time));
}
}  // namespace this_thread

}  // namespace std
