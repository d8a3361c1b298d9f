// The clock of waits and measurements: steady.
#pragma once

#include <chrono>

namespace split {

using Clock = std::chrono::steady_clock;

inline double ms_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}
inline double ms_since(Clock::time_point start) { return ms_between(start, Clock::now()); }

// Adds its lifetime to a figure.
class Timed {
 public:
  explicit Timed(double& ms) : ms_(ms) {}
  ~Timed() { ms_ += ms_since(start_); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& ms_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace split
