// A part of the model that grows while it is used: its steps, each with the weights that it needs,
// and how a tail takes them. Its floor only goes down. An error ends the growth alone, and is
// reported.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/resources/waiter.h"
#include "models/formats.h"
#include "models/model.h"
#include "step/point.h"
#include "wire/protocol.h"

namespace split::edge {

class LocalTail;

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

// The progress of a tail.
struct GrowthNote {
  Point floor;
  int layers_here = 0, layers = 0;  // layers_here: blocks loaded; layers: the model's
  bool done = false;                // growth has ended
  std::string why = {};             // obstacle of the next stage; empty: none
  bool operator==(const GrowthNote&) const = default;
  // "3/8 layers here", and the obstacle.
  std::string line() const;
};
// Takes the steps in order into a tail that began empty and loads their blobs beside texts: each
// once its blobs are here. A step without room is tried again whenever another one has come. Calls
// `told` on each change. Returns once no more comes; when `ends` is interrupted, after the present
// step, and once the tail's load is cancelled. `layers`: the model's.
void grow(LocalTail& tail, std::span<const GrowthStep> steps, int layers, const Waiter& ends,
          const std::function<void(const GrowthNote&)>& told);

// Bytes of weights that a machine takes by default.
inline constexpr uint64_t kMaxWeights = 1ull << 30;

}  // namespace split::edge
