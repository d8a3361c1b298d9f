// Decides where a running text goes on: all that is known of it, of this machine, of the cloud and
// of the line goes in as one plain struct, and a place with its reason comes out. The same input
// gives the same decision; no clock, no memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/resources/clock.h"
#include "edge_client/place/cut.h"
#include "edge_client/place/why.h"

namespace split::edge {

using Moment = Clock::time_point;

struct Decision {
  Cut cut;
  Why why = Why::kAsked;
  bool operator==(const Decision&) const = default;
};

// A cut to move to for speed alone.
struct FasterCut {
  Cut cut;
  double token_ms = 0;  // forecast there
  double row_ms = 0;    // time of both sides to bring a past row there
};

// Weights on this machine and the texts that may use them.
struct LocalWeights {
  std::optional<int> lowest = {};  // lowest cut; none: the tail's
  bool offloads = false;           // texts go there to spare the cloud
  std::optional<FasterCut> quicker = {};
  // When all weights are expected here; none: never, or unknown.
  std::optional<Moment> whole_at = {};
};

struct PlaceInput {
  // The text.
  int layers = 0;
  Cut cut;
  uint32_t rows = 0;                         // rows of its past
  uint32_t tokens_left = 0;                  // tokens that may still come
  bool named = false;                        // its cut was named
  std::optional<Cut> before_wish = {};       // its cut before the cloud's wish moved it
  std::optional<Cut> came_from = {};         // its cut before it moved here to spare the cloud
  std::optional<double> token_ms = {};       // the last tokens' mean; none: too few
  std::optional<Decision> going = {};        // the move in preparation
  uint32_t prepared_rows = 0;                // rows that it has by now
  uint64_t prepared_layer_rows = 0;          // the cloud's layer rows spent on them
  int slow_runs = 0;                         // consecutive runs of its tokens slower than `quicker`
  bool at_its_token = false;                 // the move has a token of its own
  std::optional<Cut> fled_from = {};         // its cut before the cloud was lost
  std::optional<double> fled_token_ms = {};  // token time before that
  std::optional<double> since_move_ms = {};  // since the last move
  std::optional<double> since_wish_ms = {};  // since the last move that the cloud asked for
  // Facts of this machine and the line.
  std::optional<int> lowest = {};         // lowest cut at which it can go on; none: stays
  int lowest_quick = 0;                   // lower cuts were too slow
  bool offloads = false;                  // weights here are used to spare the cloud
  double pace = 0;                        // at this many tokens/s or more
  std::optional<FasterCut> quicker = {};  // the fastest cut here
  std::optional<double> whole_ms = {};    // until all weights are here
  // The cloud asks for this cut or a lower one.
  std::optional<int> want = {};
  bool cloud_is_back = false;  // after a loss, it answers again
  // Least time between two moves, and between two that the cloud asked for. The cloud leaves a
  // session alone as long, but does not recognise a text that returns in another session.
  double between_ms = 3000, between_wishes_ms = 10000;
};

// Returns where the text is to go on; none: it stays.
std::optional<Decision> next_place(const PlaceInput& in);

// Whether the prepared move in.going is made now; else call again at a later token. A move that was
// asked for or that landed weights allow is made at once, one for speed some time after the last.
bool may_switch(const PlaceInput& in);

// Whether a text may move unasked, if its bits stay the cloud's or may change. `repeats`: the
// client expects the same text for the same request.
inline bool may_move(std::optional<bool> exact, bool exact_only, bool repeats) {
  return exact.value_or(false) || (!exact_only && !repeats);
}

// A request of a text that failed.
struct LossInput {
  Cut cut;
  bool leaves = false;                 // the text may go on here
  bool whole = false;                  // all stages are loaded here
  bool in_vain = false;                // they cannot be, as was found since the cloud answered last
  bool silent = false;                 // the cloud does not answer
  bool other_model = false;            // it answers with another model
  std::chrono::milliseconds since{0};  // the request
  std::chrono::milliseconds budget{0};  // for retries
};

enum class AfterLoss : uint8_t { kRetry, kRescue, kLeave };
// kRescue: loads all stages, and asks again.
AfterLoss after_loss(const LossInput& in);

// Whether the text may be rescued once the cloud counts as lost.
inline bool may_be_rescued(const LossInput& in) { return in.leaves && in.cut > 0 && !in.in_vain; }
// How long a cloud may be silent before it counts as lost.
inline std::chrono::milliseconds loss_patience(std::chrono::milliseconds budget) {
  return std::min(std::chrono::milliseconds(1500), budget);
}

// Whether the rest of the model comes for texts at a named cut of many, so that they go on here if
// the cloud is lost: they may (`leaves`), `some` of the model runs here, and not all of it.
inline bool keeps_reserve(bool leaves, bool some, bool all, bool allowed) {
  return leaves && some && !all && allowed;
}

}  // namespace split::edge
