#include "edge_client/weights/blobs/fetch_pace.h"

#include <algorithm>

namespace split::edge {
namespace {

constexpr double kSeconds = 0.1;                // time of a range
constexpr uint64_t kLeast = 16 << 10;           // bytes: shorter ranges are mostly round trips
constexpr uint64_t kUnknown = 64 << 10;         // if no rate is known: 0.1 s of 5 Mbit/s
constexpr uint64_t kTeaches = 8 << 10;          // bytes: fewer say nothing about the rate
constexpr double kLatest = 0.3, kFaster = 2.0;  // its weight, and the largest step upwards

}  // namespace

uint64_t FetchPace::range(uint64_t left) const {
  if (!text_runs_) return left;
  const uint64_t most = rate_ > 0 ? static_cast<uint64_t>(rate_ * kSeconds) : kUnknown;
  return std::min(left, std::max(most, kLeast));
}

void FetchPace::came(uint64_t bytes, std::chrono::duration<double> took) {
  if (bytes < kTeaches || took.count() <= 0) return;
  const double rate = static_cast<double>(bytes) / took.count();
  // Bytes that waited in this machine's buffers seem to arrive at once.
  rate_ = rate_ == 0 ? rate : rate_ + kLatest * (std::min(rate, kFaster * rate_) - rate_);
}

}  // namespace split::edge
