// How far the stages are that this machine downloads: counted chunk by chunk while they come, for
// whoever asks. Knows no network.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "edge_client/weights/local_tail.h"

namespace split::edge {

// Any thread.
class StageProgress {
 public:
  struct Count {
    uint64_t bytes = 0, done = 0;
  };
  // From now on these stages, none of them begun.
  void expect(const std::vector<StageBlobs>& stages);
  void chunk(const std::string& sha256, size_t chunk);
  // Counts for each stage that is expected.
  std::map<std::string, Count> counts() const;

 private:
  struct Blob {
    uint64_t bytes = 0, done = 0;
    std::vector<bool> chunks;
  };
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> hashes_;  // by stage
  std::map<std::string, Blob> blobs_;                       // by hash
};

}  // namespace split::edge
