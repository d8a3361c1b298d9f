// The steps in which a part of the model grows while it is used, each with the weights that it
// needs. growing_tail.h takes them.
#pragma once

#include <string>
#include <vector>

#include "models/formats.h"
#include "models/model.h"
#include "step/point.h"
#include "wire/protocol.h"

namespace split::edge {

// Stages that a shard takes at once.
struct GrowthStep {
  Point floor;                        // where rows can be fed then
  std::vector<std::string> stages;    // "norm" and "head", or one
  std::vector<wire::BlobInfo> blobs;  // that no step before it has
  uint64_t bytes() const;             // of these
};
// Norm and head, the blocks from the last to the first, the embedding; without the head, the norm
// and the blocks down to the second. Throws Error(kInput) for a format that the server does not
// have.
std::vector<GrowthStep> growth_steps(const Model& model, const wire::ModelInfo& info,
                                     const StageFormats& formats, bool head = true);
// The most bytes of weights that a machine takes where nobody says.
inline constexpr uint64_t kMaxWeights = 1ull << 30;

}  // namespace split::edge
