// Threads where the system may have no more: callers that can do with fewer go on, others get an
// error.
#pragma once

#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace split {

// Throws Error(kBusy): no more threads.
[[noreturn]] void no_more_threads();

// Returns false if the system has no more threads, or no memory for one.
template <typename Thread, typename Run>
bool try_start(Thread& thread, Run run) {
  try {
    thread = Thread(std::move(run));
    return true;
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  return false;
}

// Starts at most `count` threads, as many as the system has; each calls `run` with its number.
template <typename Run>
void start_some(std::vector<std::thread>& threads, size_t count, const Run& run) {
  try {
    threads.reserve(count);
  } catch (const std::bad_alloc&) {
    return;
  }
  while (threads.size() < count) {
    std::thread one;
    if (!try_start(one, [run, i = threads.size()] { run(i); })) return;
    threads.push_back(std::move(one));
  }
}

// Throws Error(kBusy) if the system has no more threads.
template <typename Thread = std::thread, typename Run>
Thread started(Run run) {
  Thread thread;
  if (!try_start(thread, std::move(run))) no_more_threads();
  return thread;
}

}  // namespace split
