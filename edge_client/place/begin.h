// Decides before a text runs: where it begins, and what of the model comes to this machine beside
// it. Plain numbers go in; a decision with its reason comes out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "edge_client/place/bounds.h"
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
  std::optional<Cut> cut = {};  // the named one
  int fixed = 0;                // the default, and the cut of a text that cannot follow the weights
  CutBounds bounds = {};
  bool follows = false;     // the text may leave the cloud as weights come
  bool head_given = false;  // head_cloud was named
  bool head_cloud = false;  // the head runs on the cloud
  bool embeds = false;      // only hidden states are needed
  bool scheduled = false;   // its moves are named
  double head_blocks = 0;   // the head's multiplications, as a multiple of a block's
  // The cloud.
  bool cloud_lost = false;  // it does not answer, or is not needed: all weights are here
  CloudSessions sessions = {};
};

struct InitialPlacement {
  Cut cut;
  Why why = Why::kAsked;
  bool head_on_cloud = false, head_is_large = false;  // large: that put it on the cloud
  Constraint bound = Constraint::kNone;  // why a text that would have followed the weights stays
};

InitialPlacement initial_placement(const BeginInput& in);

// Whether all of a text may run here before its cloud is asked anything. `chosen`: the cut is.
inline bool may_begin_alone(std::optional<Cut> cut, bool chosen, bool head_cloud) {
  return (chosen || cut == 0) && !head_cloud;
}

// Where texts begin that are placed anew: on the cloud if they follow the weights from now on, at
// the named cut, or where they were (`now`); none: the model's default. `chosen`: the cut is left
// open.
inline std::optional<Cut> changed_cut(std::optional<Cut> named, bool chosen, bool follows,
                                      std::optional<Cut> now) {
  if (follows) return Cut::cloud();
  return named || chosen ? named : now;
}

// Whether texts go on here once their cloud is lost; `stays`: they were told to wait for it.
inline bool leaves_lost_cloud(bool follows, bool stays) { return follows || !stays; }
// Whether texts may move: by their schedule, by a user (`asked`), or away from the cloud, as
// weights come or once it is lost (`streams`).
inline bool has_moves(bool scheduled, bool asked, bool follows, bool streams) {
  return scheduled || asked || follows || streams;
}
// The highest cut that they may move to; a user may name any.
inline Cut deepest_cut(Cut scheduled, bool asked, const CutBounds& bounds) {
  return std::min(asked ? Cut::cloud() : scheduled, bounds.highest);
}

// Whether this machine's stages end with the norm. A server of many texts answers embeddings too,
// which need it: a few kilobytes.
inline bool ends_with_norm(bool embeds, bool head_cloud, bool many_texts) {
  return embeds || (head_cloud && many_texts);
}

// Whether the cloud begins a text by its words: the text may leave it as weights come (`follows`),
// its model is not known here, and nothing but the words is needed to read it.
inline bool begins_early(bool follows, bool known, bool words = true) {
  return follows && !known && words;
}

// Where a text begins whose prompt is scored: logits of a prompt come from hidden states, which the
// cloud's completions do not give.
inline Cut scored_cut(Cut cut, int layers) { return cut.is_cloud() ? Cut(layers) : cut; }

// Whether a text begins on the cloud although weights landed beside texts (`grows`): the client may
// expect the text again (`repeats`), and the bits here are not the cloud's.
inline bool begins_apart(bool grows, std::optional<bool> exact, bool repeats) {
  return grows && exact == false && repeats;
}

// Bytes of each fetch step, with the head and without it.
struct ComingInput {
  std::vector<uint64_t> steps, headless;
  double head_blocks = 0;    // the head's multiplications, as a multiple of a block's
  uint64_t max_weights = 0;  // bytes that --max-weights allows, and that the memory grants
  uint64_t granted = 0;
};

struct FetchPlan {
  size_t steps = 0;             // number of first steps that come
  bool head = true;             // the steps are `steps`, not `headless`
  bool whole = false;           // every step comes
  uint64_t bytes = 0, all = 0;  // bytes of these steps, and of the whole model
  bool by_memory = false;       // the memory is the lower limit, not --max-weights
  uint64_t most = 0;            // bytes of the lower limit
};

// Fetches as much as fits: the whole model, else without the head if the cloud computes that
// cheaper.
FetchPlan fetch_plan(const ComingInput& in);

}  // namespace split::edge
