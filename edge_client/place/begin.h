// Decides before a text runs: where it begins, and what of the model comes to this machine beside
// it. Plain numbers go in; a decision with its reason comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "edge_client/place/cut.h"
#include "edge_client/place/why.h"

namespace split::edge {

// A head that multiplies more than so many blocks is cheaper on the cloud.
inline constexpr double kLargeHead = 3;

// Abilities of a cloud's sessions.
struct CloudSessions {
  bool move = true;    // change their cut at each step, and take fills of rows
  bool stream = true;  // keep the rows of a text that the cloud generates
};

// Reasons that keep a text where it begins.
enum class Constraint : uint8_t { kNone, kOneCut, kRowsLost };
// `streams`: the cloud generates the text at times.
Constraint bound_of(const CloudSessions& sessions, bool streams);
// "the server's sessions have one cut for good"
std::string_view words_of(Constraint bound);

struct BeginInput {
  // Requests.
  Cut cut;                  // the named or default one
  int fixed = 0;            // the cut of a text that cannot follow the weights
  bool follows = false;     // the text may leave the cloud as weights come
  bool head_given = false;  // head_cloud was named, or the text needs it
  bool head_cloud = false;  // the head runs on the cloud
  double head_blocks = 0;   // the head's multiplications, as a multiple of a block's
  // The cloud.
  bool cloud_lost = false;  // it does not answer, and the whole model was seen here before
  CloudSessions sessions = {};
};

struct InitialPlacement {
  Cut cut;
  Why why = Why::kAsked;
  bool head_on_cloud = false, head_is_large = false;  // large: that put it on the cloud
  Constraint bound = Constraint::kNone;  // why a text that would have followed the weights stays
};

InitialPlacement initial_placement(const BeginInput& in);

// Bytes of each fetch step, with the head and without it.
struct ComingInput {
  std::vector<uint64_t> steps, headless;
  double head_blocks = 0;    // the head's multiplications, as a multiple of a block's
  uint64_t max_weights = 0;  // bytes that --max-weights allows, and that the memory grants
  uint64_t granted = 0;
};

enum class Limit : uint8_t { kMaxWeights, kMemory };

struct FetchPlan {
  size_t steps = 0;                  // number of first steps that come
  bool head = true;                  // the steps are `steps`, not `headless`
  bool whole = false;                // every step comes
  uint64_t bytes = 0, all = 0;       // bytes of these steps, and of the whole model
  Limit limit = Limit::kMaxWeights;  // the lower limit, and its bytes
  uint64_t most = 0;
};

// Fetches as much as fits: the whole model, else without the head if the cloud computes that
// cheaper.
FetchPlan fetch_plan(const ComingInput& in);

}  // namespace split::edge
