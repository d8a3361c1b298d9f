// A placement: the stages on this machine's side of a cut, and those on the cloud's. Knows no
// server and no device.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/options.h"
#include "models/model.h"

namespace split::edge {

// The stages between two points (run/shard.h): from tokens when `first` is 0 and `embed`.
struct TailRange {
  bool embed = false;
  int first = 0, last = 0;

  bool empty(const ModelConfig& config) const;                       // nothing to compute here
  std::vector<std::string> stages(const ModelConfig& config) const;  // "block.2", "norm" ...
  // "blocks 2-3, norm, head"
  std::string describe(const ModelConfig& config) const;
};

struct Placement {
  int cut = 0;                // the cloud runs the first `cut` blocks,
  bool all_on_cloud = false;  // or everything
  bool head_on_cloud = false;
  TailRange range;  // what this machine runs, unless all is on the cloud

  bool local(const ModelConfig& config) const { return !all_on_cloud && !range.empty(config); }
  std::string name() const { return all_on_cloud ? "cloud" : std::to_string(cut); }
  std::string on_edge(const ModelConfig& config) const;  // "blocks 2-3, norm, head"
  std::string on_cloud(const ModelConfig& config) const;
};

// Throws Error(kInput) for a cut beyond the model's blocks.
Placement place(const Options& options, const ModelConfig& config);

}  // namespace split::edge
