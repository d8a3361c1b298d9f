// Calls on a thread of its own: a driver's compilers need a larger stack than a request's thread
// has.
#pragma once

#include <exception>

#include "base/resources/threads.h"

namespace split::edge {

// Waits. Throws what the call throws, and Error(kBusy) if the system has no more threads.
template <typename Call>
void on_large_stack(const Call& call) {
  std::exception_ptr error;
  std::thread thread = started([&] {
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace split::edge
