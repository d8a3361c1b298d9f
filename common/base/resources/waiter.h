// How something waits before a retry, and learns that waiting is useless: a program's thread waits
// (interrupt.h), a test need not.
#pragma once

#include <chrono>

namespace split {

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual bool interrupted() const = 0;
  // Returns false, at once, when interrupted; true after `time`.
  virtual bool wait(std::chrono::milliseconds time) = 0;
};

}  // namespace split
