// How long and how often to try again: backoff with jitter, from a few milliseconds up, within a
// budget that starts with the first failure. The server's Retry-After is kept to, within the
// budget. Computes delays and never blocks; retry.h does. Knows nothing of what is tried.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <random>
#include <utility>

#include "edge_client/split/cloud_link.h"

namespace split::edge {

// The code of on_lost's error for a first request: nothing has failed yet.
inline constexpr const char* kFirstAsk = "first";

struct RetryOptions {
  std::chrono::milliseconds budget{30000};
  std::chrono::milliseconds first{20}, most{2000};        // the shortest and the longest delay
  std::function<void(const RemoteError&)> on_retry = {};  // called before each retry; any thread
  // Called when a wait begins and when it ends: the server answers, or is given up. Any thread.
  std::function<void(const RemoteError&)> on_lost = {};
  std::function<void(bool again)> on_found = {};
};

// One thread at a time.
class Backoff {
 public:
  explicit Backoff(const RetryOptions& options);
  ~Backoff() { found(std::uncaught_exceptions() == 0); }
  Backoff(const Backoff&) = delete;
  Backoff& operator=(const Backoff&) = delete;

  // Something went well: the next failure starts a new budget.
  void succeeded() { found(true); }
  bool failing() const { return failing_; }
  // Ends the failure without another try.
  void gave_up() { found(false); }
  // Returns the delay before the next try. Throws `error` if it is permanent or the budget is
  // spent.
  std::chrono::milliseconds failed(const RemoteError& error, bool passes,
                                   std::chrono::steady_clock::time_point now);
  // Reports a retry.
  void again(const RemoteError& error) const {
    if (options_.on_retry) options_.on_retry(error);
  }

 private:
  void found(bool again) {
    if (std::exchange(failing_, false) && options_.on_found) options_.on_found(again);
  }

  RetryOptions options_;
  std::minstd_rand random_;
  bool failing_ = false;
  std::chrono::steady_clock::time_point end_;
  std::chrono::milliseconds next_{};
};

}  // namespace split::edge
