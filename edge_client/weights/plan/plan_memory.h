// Keeps what was measured and learnt for plans in the cache, from run to run: one small record for
// each server, model, device and formats, under root/plans. A record that is damaged, or another
// one's, is as none.
#pragma once

#include <string>

#include "edge_client/place/forecast.h"
#include "edge_client/weights/blobs/shard_cache.h"

namespace split::edge {

// Immutable; any thread and any number of processes.
class PlanMemory {
 public:
  static constexpr size_t kMost = 256;  // records; those written longest ago make room

  struct Key {
    std::string server, model;
    std::string here;  // this machine's device, threads, profile and formats, as they were asked
  };
  PlanMemory(const ShardCache& cache, Key key)
      : folder_(cache.root() / "plans"), key_(std::move(key)) {}

  PlanFacts recall() const;
  // Keeps nothing where the file cannot be written.
  void remember(const PlanFacts& facts) const;

 private:
  std::filesystem::path path() const;
  void make_room() const;

  const std::filesystem::path folder_;
  const Key key_;
};

}  // namespace split::edge
