// The clock that waits and measurements are counted by: nobody sets it.
#pragma once

#include <chrono>

namespace split {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace split
