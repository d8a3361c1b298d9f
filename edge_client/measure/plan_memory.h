// Keeps measurements and corrections for plans in the cache, from run to run: one small record for
// each server, model, device and formats, under root/plans. Ignores a record that is damaged or for
// another key.
#pragma once

#include <string>

#include "edge_client/place/forecast.h"
#include "edge_client/weights/blobs/shard_cache.h"

namespace split::edge {

// Immutable; any thread and any number of processes.
class PlanMemory {
 public:
  static constexpr size_t kMost = 256;  // records; the oldest make room

  // `here`: this machine's device, threads, profile and formats, as requested.
  PlanMemory(const ShardCache& cache, std::string server, std::string model, std::string here)
      : folder_(cache.root() / "plans"),
        server_(std::move(server)),
        model_(std::move(model)),
        here_(std::move(here)) {}

  PlanFacts recall() const;
  // Does nothing if the file cannot be written.
  void remember(const PlanFacts& facts) const;

 private:
  std::filesystem::path path() const;
  void make_room() const;

  const std::filesystem::path folder_;
  const std::string server_, model_, here_;
};

}  // namespace split::edge
