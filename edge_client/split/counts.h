// The cost of a text: bytes and ms on the way, at the cloud and here, and the weights before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace split::edge {

// The cost of the steps of a text.
struct Traffic {
  uint64_t bytes_up = 0, bytes_down = 0;  // bodies
  double cloud_ms = 0;                    // of which the server says that it took it
  double wire_ms = 0;                     // the rest of the time until the answer
  DType rows = DType::kF32;               // that hidden states were rounded to, if they were

  Traffic& operator+=(const Traffic& other);
};

// The cut moved.
struct Move {
  uint32_t at = 0;                   // tokens out
  static constexpr int kCloud = -1;  // all of the model there
  int from = 0, to = 0;
  std::string why;
  uint64_t rows = 0, bytes = 0;  // computed again for it, and on the way
  double pause_ms = 0;           // of the token behind it
};

struct SplitCounts {
  Traffic traffic;
  uint64_t steps = 0;             // calls of run()
  uint64_t trips = 0;             // to the cloud that tokens waited for: a session's steps, streams
  uint64_t cloud_layer_rows = 0;  // rows times layers that ran on the cloud
  uint64_t replays = 0;
  uint64_t kept_rows = 0;              // of prompts, that were there from an earlier text
  uint64_t drafted = 0, accepted = 0;  // guesses that steps had, and those that saved one
  double edge_ms = 0;                  // computing here
  double ms = 0;                       // in all
  std::vector<Move> moves = {};

  SplitCounts& operator+=(const SplitCounts& other);
};

// The load, as the cloud says it.
struct CloudSays {
  std::optional<int> want;  // the cut, or a lower one, that it wishes for; none: any
  int draft = 7;            // guesses that a step may have
  bool operator==(const CloudSays&) const = default;
};

struct FetchCounts {
  uint64_t downloaded = 0;  // bytes that came over the wire
  uint64_t from_cache = 0;  // and that were good on this disk
};

}  // namespace split::edge
