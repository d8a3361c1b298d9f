// Retries for callers that can block: a Backoff, a clock and a Waiter.
#pragma once

#include "base/resources/waiter.h"
#include "edge_client/split/backoff.h"

namespace split::edge {

// One thread at a time.
class Retry {
 public:
  Retry(const RetryOptions& options, Waiter& waiter) : backoff_(options), waiter_(waiter) {}

  // Resets the budget: the next failure starts a new one.
  void succeeded() { backoff_.succeeded(); }
  // Waits before the next try. Throws `error` if it is permanent, the budget is spent or the
  // program is interrupted.
  void failed(const RemoteError& error) {
    if (waiter_.interrupted()) throw error;
    const auto now = std::chrono::steady_clock::now();
    if (!waiter_.wait(backoff_.failed(error, error.transient(), now))) throw error;
    backoff_.again(error);
  }

 private:
  Backoff backoff_;
  Waiter& waiter_;
};

// Repeats the call until it succeeds.
template <typename Call>
auto retried(const RetryOptions& options, Waiter& waiter, const Call& call) {
  Retry retry(options, waiter);
  for (;;) {
    try {
      return call();
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

}  // namespace split::edge
