#include "edge_client/split/backoff.h"
#include "wire/codes.h"

#include <algorithm>

namespace split::edge {

bool RemoteError::transient() const {
  return code == wire::codes::kDamaged || status == 0 || status == 408 || status == 429 ||
         (status >= 502 && status <= 504);
}

bool RemoteError::loses() const {
  return status == 0 || status == 502 || status == 504 || code == wire::codes::kSessionUnknown ||
         code == wire::codes::kPositionMismatch || code == wire::codes::kDepthMismatch ||
         code == wire::codes::kSessionConflict || code == wire::codes::kModelMismatch;
}

Backoff::Backoff(const RetryOptions& options)
    : options_(options), random_(std::random_device()()) {}

std::chrono::milliseconds Backoff::failed(const RemoteError& error, bool passes,
                                          std::chrono::steady_clock::time_point now) {
  using std::chrono::milliseconds;
  if (!passes) throw error;
  if (!failing_) {
    if (options_.budget.count() > 0 && options_.on_lost) options_.on_lost(error);
    failing_ = options_.budget.count() > 0;
    end_ = now + options_.budget;
    next_ = options_.first;
  }
  // Between half of the step and all of it, so that edges that lost one server do not return at
  // once.
  std::uniform_int_distribution<int64_t> jitter(next_.count() / 2, next_.count());
  milliseconds wait(jitter(random_));
  next_ = std::min(next_ * 2, options_.most);
  if (error.retry_after) {
    // Never sooner, and up to half as long again: every edge got the same Retry-After.
    const int64_t told = int64_t{1000} * *error.retry_after;
    wait = std::max(
        wait, milliseconds(told + jitter(random_, decltype(jitter)::param_type(0, told / 2))));
  }
  const auto left = std::chrono::duration_cast<milliseconds>(end_ - now);
  if (left.count() <= 0) throw error;
  return std::min(wait, left);
}

}  // namespace split::edge
