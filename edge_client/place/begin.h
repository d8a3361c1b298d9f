// Decides before a text runs: where it begins, and what of the model comes to this machine beside
// it. Plain numbers go in; a decision with its reason comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "edge_client/place/why.h"

namespace split::edge {

// A head that multiplies more than so many blocks is cheaper on the cloud.
inline constexpr double kLargeHead = 3;

// The abilities of a cloud's sessions.
struct CloudSessions {
  bool move = true;    // their cut may be another one at each step, and rows be filled in
  bool stream = true;  // they keep the rows of a text that the cloud makes
};

// The reasons that keep a text where it begins.
enum class Constraint : uint8_t { kNone, kOneCut, kRowsLost };
// `streams`: the text is the cloud's own at times.
Constraint bound_of(const CloudSessions& sessions, bool streams);
// "the server's sessions have one cut for good"
std::string_view words_of(Constraint bound);

struct BeginInput {
  // Wishes.
  int cut = 0;              // named, or the usual one,
  bool on_cloud = false;    // but all of the text is there
  bool follows = false;     // it may leave the cloud as weights come
  bool head_given = false;  // somebody said where the head is, or that the text needs it there:
  bool head_cloud = false;  // on the cloud
  double head_blocks = 0;   // the head's multiplications, in those of a block
  // The cloud.
  bool cloud_lost = false;  // it does not answer, and all of the model was seen here
  CloudSessions sessions = {};
};

struct InitialPlacement {
  std::optional<int> cut = {};  // none: all on the cloud
  Why why = Why::kAsked;
  bool head_on_cloud = false, head_is_large = false;  // and is there for that
  Constraint bound = Constraint::kNone;  // of a text that would have followed the weights
};

InitialPlacement initial_placement(const BeginInput& in);

// Steps in which weights can come, each with its bytes: with the head, and without it.
struct ComingInput {
  std::vector<uint64_t> steps, headless;
  double head_blocks = 0;    // the head's multiplications, in those of a block
  uint64_t max_weights = 0;  // bytes that somebody allows, and that the memory grants
  uint64_t granted = 0;
};

enum class Limit : uint8_t { kMaxWeights, kMemory };

struct FetchPlan {
  size_t steps = 0;                  // so many come, from the first on
  bool head = true;                  // they are those with the head
  bool whole = false;                // they are all
  uint64_t bytes = 0, all = 0;       // of them, and of the whole model
  Limit limit = Limit::kMaxWeights;  // the lower one, and its bytes
  uint64_t most = 0;
};

// As many as fit: all of the model, else without the head where the cloud computes that cheaper.
FetchPlan fetch_plan(const ComingInput& in);

}  // namespace split::edge
