// How long and how often to try again: backoff with jitter, from a few milliseconds up, within a
// budget that starts with the first failure. The server's Retry-After is kept to, within the
// budget. Knows nothing of what is tried.
#pragma once

#include <chrono>
#include <functional>
#include <random>

#include "base/waiter.h"
#include "edge_client/split/cloud_link.h"

namespace split::edge {

struct RetryOptions {
  std::chrono::milliseconds budget{30000};
  std::chrono::milliseconds first{20}, most{2000};        // waits
  std::function<void(const RemoteError&)> on_retry = {};  // told before each; any thread
};

// One thread at a time.
class Retry {
 public:
  Retry(const RetryOptions& options, Waiter& waiter);

  // Something went well: the next failure starts a new budget.
  void succeeded();
  // Waits, and returns; or throws `error` when it is none that passes, the budget is spent or the
  // program is interrupted.
  void failed(const RemoteError& error) { failed(error, error.transient()); }
  void failed(const RemoteError& error, bool passes);

 private:
  using Clock = std::chrono::steady_clock;
  RetryOptions options_;
  Waiter& waiter_;
  std::minstd_rand random_;
  bool failing_ = false;
  Clock::time_point end_;
  std::chrono::milliseconds next_{};
};

}  // namespace split::edge
