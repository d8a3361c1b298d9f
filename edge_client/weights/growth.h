// A part of the model that grows while it is used: in which order its stages are fetched, what has
// come of each, and which one the shard takes next. Decisions that are fed with what happened: no
// thread, no socket, no clock. growing_tail.h carries them out.
#pragma once

#include <optional>
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

// News of a step, or of all.
struct StageEvent {
  enum class Kind : uint8_t {
    kLanded,  // its weights are here and good
    kBroken,  // they will not come
    kOver,    // nothing more happens
  };
  Kind kind = Kind::kOver;
  size_t step = 0;
  std::string why = {};
};

// Says which step the shard takes, and when there is no more to do. Events come in any order.
class Landing {
 public:
  explicit Landing(size_t steps) : steps_(steps), why_(steps) {}

  void happened(const StageEvent& event);
  // The step that next() named was taken, or not: one that there is no room for is tried again
  // after the next landing, one that is wrong is not.
  void taken();
  void refused(std::string why, bool for_good);

  enum class Todo : uint8_t { kWait, kTake, kDone };
  Todo next() const;
  size_t step() const { return taken_; }  // that is taken next; how many were
  // Says what is in the way of that one; nothing where it is still to come, or there is none.
  std::string why() const { return taken_ < why_.size() ? why_[taken_] : ""; }

 private:
  enum class State : uint8_t { kComing, kLanded, kBroken };
  std::vector<State> steps_;
  std::vector<std::string> why_;  // of the steps
  size_t taken_ = 0;
  bool refused_ = false, over_ = false;
};

}  // namespace split::edge
