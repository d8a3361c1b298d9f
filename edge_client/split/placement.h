// A placement: the stages on this machine's side of a cut, and those on the cloud's. Knows no
// server and no device.
#pragma once

#include <string>

#include "edge_client/place/begin.h"
#include "edge_client/split/engine_options.h"
#include "models/model.h"
#include "step/range.h"

namespace split::edge {

struct Placement {
  Cut cut;
  bool head_on_cloud = false;
  double head_blocks = 0;            // the head's cost in blocks, if that put it on the cloud
  std::vector<ScheduledMove> moves;  // later moves of each text
  StageRange range;                  // stages on this machine if any: from the lowest cut on

  bool local() const { return (!cut.is_cloud() || !moves.empty()) && !range.empty(); }
  // Whether the cloud computes nothing.
  bool alone() const { return local() && cut == 0 && !head_on_cloud; }
  std::string on_edge(const ModelConfig& config) const;  // "blocks 2-3, norm, head"
  std::string on_cloud(const ModelConfig& config) const;
};

// Throws Error(kInput) for a cut beyond the model's blocks.
Placement place(const PlacementRequest& request, const ModelConfig& config);
// Leaves open choices to place/begin.h, else as above; throws for what is beyond the bounds too.
Placement place(const PlacementRequest& request, const Model& model, const CutBounds& bounds = {},
                const CloudSessions& sessions = {}, bool cloud_lost = false);
// The head's multiplications for a row, as a multiple of a block's.
double head_in_blocks(const Model& model);
// A line that says where a large head runs; empty if there is nothing to say.
std::string head_line(const Placement& place);

}  // namespace split::edge
