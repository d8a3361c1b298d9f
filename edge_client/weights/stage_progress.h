// How far the stages are that come to this machine, in the order in which they come, and how long
// each will take by the rate of what is coming in: counted byte by byte, for whoever asks. Knows no
// network.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/weights/local_tail.h"

namespace split::edge {

// Any thread.
class StageProgress {
 public:
  using Time = Clock::time_point;
  struct Count {
    uint64_t bytes = 0, done = 0;
    // Until it is here, with those before it; none where nothing comes in.
    std::optional<double> seconds_left = {};
  };
  // From now on these stages, none of them begun.
  void expect(const std::vector<StageBlobs>& stages);
  // So many bytes of a chunk are here; those that were `fetched` just now have a rate.
  void came(const std::string& sha256, size_t chunk, uint64_t have, bool fetched, Time now);
  OnBytes on_bytes();
  // Counts for each stage that is expected.
  std::map<std::string, Count> counts(Time now) const;

 private:
  struct Blob {
    uint64_t bytes = 0, done = 0;
    std::vector<uint64_t> chunks;  // bytes of each that are here
  };
  std::optional<double> bytes_per_second(Time now) const;

  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::vector<std::string>>> stages_;  // and their hashes
  std::map<std::string, Blob> blobs_;                                     // by hash
  uint64_t fetched_ = 0;                                                  // bytes
  std::deque<std::pair<Time, uint64_t>> marks_;                           // of these, lately
};

}  // namespace split::edge
