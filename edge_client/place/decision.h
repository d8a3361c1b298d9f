// Decides where a running text goes on: all that is known of it, of this machine, of the cloud and
// of the line goes in as one plain struct, and a place with its reason comes out. The same input
// gives the same decision; no clock, no memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "edge_client/place/why.h"

namespace split::edge {

struct Decision {
  int cut = 0;
  Why why = Why::kAsked;
  bool operator==(const Decision&) const = default;
};

// A cut to go to for the sake of speed alone.
struct Quicker {
  int cut = 0;
  double token_ms = 0;  // foreseen there
  double row_ms = 0;    // of both sides, to bring a row of the past there
};

// Weights on this machine, and how a text may use them.
struct Offer {
  std::optional<int> lowest = {};  // cut; none: as low as the tail reaches
  bool offloads = false;           // the text goes there, to spare the cloud
  std::optional<Quicker> quicker = {};
  // When all weights are expected here; none: they are not, or nobody knows.
  std::optional<std::chrono::steady_clock::time_point> whole_at = {};
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
  std::optional<int> fled_from = {};    // its cut before the cloud was lost, which answers again
  std::optional<double> fled_token_ms = {};  // as quick as its tokens were there
  // This machine and the line.
  std::optional<int> lowest = {};       // cut at which it can go on; none: nowhere else
  int lowest_quick = 0;                 // cut below which it was too slow
  bool offloads = false;                // what is here is used to spare the cloud,
  double pace = 0;                      // at so many tokens a second or more
  std::optional<Quicker> quicker = {};  // the quickest place here
  std::optional<double> whole_ms = {};  // until all weights are here
  // The cloud wishes for this cut or a lower one.
  std::optional<int> want = {};
};

// Where the text is to go on; none: it stays.
std::optional<Decision> next_place(const PlaceInput& in);

// Whether tokens come at the pace that the text has to keep, as far as that is known.
bool keeps_pace(const std::optional<double>& token_ms, double pace);

// Whether a text may leave its place unasked, where its bits stay the cloud's or may change.
// `repeats`: somebody may expect it again.
inline bool may_move(std::optional<bool> exact, bool exact_only, bool repeats) {
  return exact.value_or(false) || (!exact_only && !repeats);
}

}  // namespace split::edge
