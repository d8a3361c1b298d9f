// The progress of the stages that come to this machine, in their order, and how long each will take
// at the present rate, counted byte by byte. Knows no network.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/lock_order.h"
#include "edge_client/weights/local_tail.h"

namespace split::edge {

// Any thread.
class StageProgress {
 public:
  using Time = Clock::time_point;
  struct Count {
    uint64_t bytes = 0, done = 0;
    // Time until it is here, with the stages before it; nullopt while nothing comes in.
    std::optional<double> seconds_left = {};
  };
  // Replaces the stages; none of them has begun.
  void expect(const std::vector<StageBlobs>& stages);
  // Notes that so many bytes of a chunk are here; bytes that were `fetched` just now give the rate.
  void came(const std::string& sha256, size_t chunk, uint64_t have, bool fetched, Time now);
  OnBytes on_bytes();
  // Returns the counts of each expected stage.
  std::map<std::string, Count> counts(Time now) const;

 private:
  struct Blob {
    uint64_t bytes = 0, done = 0;
    std::vector<uint64_t> chunks;  // bytes of each chunk here
  };
  std::optional<double> bytes_per_second(Time now) const;

  mutable Mutex mutex_{LockOrder::kProgress};
  std::vector<std::pair<std::string, std::vector<std::string>>> stages_;  // each with its hashes
  std::map<std::string, Blob> blobs_;                                     // keyed by hash
  uint64_t fetched_ = 0;                                                  // bytes
  std::deque<std::pair<Time, uint64_t>> marks_;  // fetched_ at recent times
};

}  // namespace split::edge
