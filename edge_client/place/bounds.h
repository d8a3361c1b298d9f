// The cuts that texts of a model may have, whoever asks for one: flags, requests, moves and plans.
// A rule is a row of kBounds; the facts that it reads are of the model and the user, not of a text.
#pragma once

#include <optional>
#include <string_view>

#include "edge_client/place/cut.h"

namespace split::edge {

struct BoundFacts {
  std::optional<int> tail = {};  // first block of a fine-tuned tail
};

struct CutBounds {
  Cut highest = Cut::cloud();
  std::string_view why = {};  // "where the tail begins"
  bool head_here = false;     // the head runs here alone

  // Throws Error(kInput) about the flag for a cut beyond them.
  void expect(std::string_view flag, Cut cut) const;
};

CutBounds bounds_of(const BoundFacts& facts);

// Whether the cut is chosen below a bound: neither it nor a schedule of cuts was named.
inline bool chooses_below(bool bounded, bool named, bool scheduled) {
  return bounded && !named && !scheduled;
}

// Where texts begin with --cut auto: on the cloud, or beside a bound, which nothing comes past,
// here or at it. `whole`: all weights are here.
inline Cut auto_cut(const CutBounds& bounds, bool whole) {
  return bounds.highest.is_cloud() || !whole ? bounds.highest : Cut(0);
}

}  // namespace split::edge
