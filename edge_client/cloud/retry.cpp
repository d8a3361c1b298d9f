#include "edge_client/cloud/retry.h"

#include <algorithm>

namespace split::edge {

Retry::Retry(const RetryOptions& options, Interrupt& interrupt)
    : options_(options), interrupt_(interrupt), random_(std::random_device()()) {}

void Retry::succeeded() { failing_ = false; }

void Retry::failed(const RemoteError& error, bool passes) {
  using std::chrono::milliseconds;
  if (interrupt_.signal() != 0 || !passes) throw error;
  const auto now = Clock::now();
  if (!failing_) {
    failing_ = true;
    end_ = now + options_.budget;
    next_ = options_.first;
  }
  // Half to all of the step, so that edges that lost one server do not come back as one.
  std::uniform_int_distribution<int64_t> jitter(next_.count() / 2, next_.count());
  milliseconds wait(jitter(random_));
  next_ = std::min(next_ * 2, options_.most);
  if (error.retry_after) {
    // Not sooner, and up to half as long again: all were told the same.
    const int64_t told = int64_t{1000} * *error.retry_after;
    wait = std::max(
        wait, milliseconds(told + jitter(random_, decltype(jitter)::param_type(0, told / 2))));
  }
  const auto left = std::chrono::duration_cast<milliseconds>(end_ - now);
  if (left.count() <= 0) throw error;
  if (!interrupt_.wait(std::min(wait, left))) throw error;
  if (options_.on_retry) options_.on_retry(error);
}

}  // namespace split::edge
