// Decides where a running text goes on: all that is known of it, of this machine, of the cloud and
// of the line goes in as one plain struct, and a place with its reason comes out. The same input
// gives the same decision; no clock, no memory.
#pragma once

#include <cstdint>
#include <optional>

#include "base/resources/clock.h"
#include "edge_client/place/why.h"

namespace split::edge {

using Moment = Clock::time_point;

struct Decision {
  int cut = 0;
  Why why = Why::kAsked;
  bool operator==(const Decision&) const = default;
};

// A cut to go to for the sake of speed alone.
struct FasterCut {
  int cut = 0;
  double token_ms = 0;  // foreseen there
  double row_ms = 0;    // of both sides, to bring a row of the past there
};

// Weights on this machine, and how a text may use them.
struct LocalWeights {
  std::optional<int> lowest = {};  // cut; none: as low as the tail reaches
  bool offloads = false;           // the text goes there, to spare the cloud
  std::optional<FasterCut> quicker = {};
  // When all weights are expected here; none: they are not, or nobody knows.
  std::optional<Moment> whole_at = {};
};

struct PlaceInput {
  // The text. With a cut of layers + 1, here as below, all of it is on the cloud.
  int layers = 0, cut = 0;
  uint32_t rows = 0;                    // that its past has
  uint32_t tokens_left = 0;             // that may still come
  bool named = false;                   // somebody said where its cut is to be
  std::optional<int> before_wish = {};  // its cut before it followed the cloud's wish
  std::optional<int> came_from = {};    // its cut before it came here to spare the cloud
  std::optional<double> token_ms = {};  // of its last tokens; none: it has too few
  std::optional<Decision> going = {};   // the move that is being prepared,
  uint32_t prepared_rows = 0;           // rows that are there by now,
  uint64_t prepared_layer_rows = 0;     // and what these took the cloud
  int slow_runs = 0;                    // runs of its tokens that were slower than `quicker`
  bool at_its_token = false;            // that move is to be made at a token that somebody named
  std::optional<int> fled_from = {};    // its cut before the cloud was lost
  std::optional<double> fled_token_ms = {};  // as quick as its tokens were there
  std::optional<double> since_move_ms = {};  // since its last move
  std::optional<double> since_wish_ms = {};  // since the last one for the cloud's sake
  // This machine and the line.
  std::optional<int> lowest = {};         // cut at which it can go on; none: nowhere else
  int lowest_quick = 0;                   // cut below which it was too slow
  bool offloads = false;                  // what is here is used to spare the cloud,
  double pace = 0;                        // at so many tokens a second or more
  std::optional<FasterCut> quicker = {};  // the quickest place here
  std::optional<double> whole_ms = {};    // until all weights are here
  // The cloud wishes for this cut or a lower one.
  std::optional<int> want = {};
  bool cloud_is_back = false;  // it was lost, and answers again
  // Pauses between any two moves, and between two for the cloud's sake. The cloud leaves a session
  // alone as long, but does not know a text again that comes back in another one.
  double between_ms = 3000, between_wishes_ms = 10000;
};

// Where the text is to go on; none: it stays.
std::optional<Decision> next_place(const PlaceInput& in);

// Whether a move that is prepared, in.going, is made now; else it is asked again at a later token.
// A move that was asked for, or that a landed stage waits for, comes at once; one that is only
// faster some time after the last.
bool may_switch(const PlaceInput& in);

// Whether a text may leave its place unasked, where its bits stay the cloud's or may change.
// `repeats`: somebody may expect it again.
inline bool may_move(std::optional<bool> exact, bool exact_only, bool repeats) {
  return exact.value_or(false) || (!exact_only && !repeats);
}

}  // namespace split::edge
