// The cost of a text: bytes and ms on the way, at the cloud and here, and the weights before it.
#pragma once

#include <cstdint>

namespace split::edge {

// The cost of the steps of a text.
struct Traffic {
  uint64_t bytes_up = 0, bytes_down = 0;  // bodies
  double cloud_ms = 0;                    // of which the server says that it took it
  double wire_ms = 0;                     // the rest of the time until the answer

  Traffic& operator+=(const Traffic& other);
};

struct SplitCounts {
  Traffic traffic;
  uint64_t steps = 0;             // calls of run()
  uint64_t cloud_layer_rows = 0;  // rows times layers that ran on the cloud
  uint64_t replays = 0;
  double edge_ms = 0;  // computing here
  double ms = 0;       // in all

  SplitCounts& operator+=(const SplitCounts& other);
};

struct FetchCounts {
  uint64_t downloaded = 0;  // bytes that came over the wire
  uint64_t from_cache = 0;  // and that were good on this disk
};

}  // namespace split::edge
