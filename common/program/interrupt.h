// Ctrl-C and SIGTERM as an event that wakes waiting code: the program stops its request, cleans up
// and leaves. Does not know what it interrupts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/resources/waiter.h"

namespace split {

// Any thread.
class Interrupt : public Waiter {
 public:
  // Called by a signal's watcher or a test. `signal` is not 0; the first one counts.
  void raise(int signal);
  int signal() const;  // 0: none yet
  bool interrupted() const override { return signal() != 0; }
  bool wait(std::chrono::milliseconds time) override;

  // While it lives, a signal that `takes` returns true for does not interrupt. One at a time.
  // `takes` may neither call the Interrupt nor wait.
  class Diversion {
   public:
    Diversion(Interrupt& interrupt, std::function<bool(int signal)> takes);
    ~Diversion();
    Diversion(const Diversion&) = delete;
    Diversion& operator=(const Diversion&) = delete;

   private:
    Interrupt& interrupt_;
  };

  // While it lives, raise() calls `call`; the constructor does if a signal came before. `call` may
  // neither call the Interrupt nor wait.
  class Hook {
   public:
    Hook(Interrupt& interrupt, std::function<void()> call);
    ~Hook();
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   private:
    Interrupt& interrupt_;
    std::list<std::function<void()>>::iterator at_;
  };

 private:
  mutable std::mutex mutex_;
  std::condition_variable raised_;
  int signal_ = 0;
  std::list<std::function<void()>> calls_;
  std::function<bool(int signal)> diverted_;
};

// Turns SIGINT and SIGTERM into raise(); a second one ends the process at once, and so does the
// first, with one line, if this still lives a second after the program's `patience`. With `hangup`,
// SIGHUP calls it, on a thread of this; without, it ends the process as usual. Made before any
// other thread, which inherits the blocked signals.
class SignalWatch {
 public:
  static constexpr std::chrono::seconds kPatience{10};
  explicit SignalWatch(Interrupt& interrupt, std::chrono::seconds patience = kPatience,
                       std::function<void()> hangup = {});
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  Fd signals_, end_;
  std::thread thread_;
};

// The exit code of a process ended by `signal`: 130 for SIGINT, 0 for SIGTERM.
int exit_code_of_signal(int signal);

}  // namespace split
