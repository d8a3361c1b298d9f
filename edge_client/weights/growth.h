// The steps in which a part of the model grows while it is used, each with the weights that it
// needs. incremental_shard.h takes them.
#pragma once

#include <string>
#include <vector>

#include "models/formats.h"
#include "models/model.h"
#include "step/point.h"
#include "wire/protocol.h"

namespace split::edge {

// Stages that a shard takes together.
struct GrowthStep {
  Point floor;                        // rows can be fed here after it
  std::vector<std::string> stages;    // "norm" and "head", or one
  std::vector<wire::BlobInfo> blobs;  // not needed by an earlier step
  uint64_t bytes() const;             // total of blobs
};
// Returns norm and head, the blocks from the last to the first, the embedding; without the head,
// the norm and the blocks down to the second. Throws Error(kInput) for a format that the server
// does not have.
std::vector<GrowthStep> growth_steps(const Model& model, const wire::ModelInfo& info,
                                     const StageFormats& formats, bool head = true);
// Bytes of weights that a machine takes by default.
inline constexpr uint64_t kMaxWeights = 1ull << 30;

}  // namespace split::edge
