#pragma once

#include <chrono>
#include <ctime>

namespace split {

// Returns the processor time of the calling thread since its start.
inline std::chrono::nanoseconds thread_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace split
