// The cost of a text: bytes and ms on the way, at the cloud and here, and the weights before it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "edge_client/place/cut.h"
#include "edge_client/place/why.h"
#include "tensor/shape.h"

namespace split::edge {

// Bytes and time of a text's steps.
struct Traffic {
  uint64_t bytes_up = 0, bytes_down = 0;  // bodies
  double cloud_ms = 0;                    // the server's report
  double wire_ms = 0;                     // the rest of the time until the answer
  double stream_ms = 0;                   // streams: the cloud's time and the line's together
  DType rows = DType::kF32;  // format that hidden states were rounded to; kF32: not rounded

  Traffic& operator+=(const Traffic& other);
};

// A move of the cut.
struct Move {
  uint32_t at = 0;  // tokens out
  Cut from, to;
  Why why = Why::kAsked;
  double token_ms = 0, there_ms = 0;  // measured before, forecast after; 0: unknown
  uint64_t rows = 0, bytes = 0;       // computed again for it; sent and received
  double pause_ms = 0;                // time of the token behind it
  // Layer rows that the move took the cloud, with those prepared in vain since the move before it,
  // and that it spared the cloud until the text's end: negative where it gave the cloud work.
  uint64_t cloud_layer_rows_cost = 0;
  int64_t cloud_layer_rows_saved = 0;
};

// The rows that led to a text, each once: through blocks, and through the head.
struct TextWork {
  uint64_t rows = 0, cloud_layer_rows = 0;  // layer rows: rows times layers
  uint64_t heads = 0, cloud_heads = 0;

  TextWork& operator+=(const TextWork& other);
};

// The cloud's share in whole percent, if the head multiplies as much as so many blocks; none
// without work.
std::optional<int> cloud_percent(const TextWork& work, int layers, double head_blocks);

struct SplitCounts {
  Traffic traffic;
  TextWork work;
  uint64_t steps = 0;  // calls of run()
  uint64_t trips = 0;  // trips to the cloud that tokens waited for: a session's steps, streams
  uint64_t cloud_layer_rows = 0;  // rows times layers that ran on the cloud
  // Layer rows among these for moves, after losses and of wrong guesses.
  uint64_t cloud_layer_rows_again() const { return cloud_layer_rows - work.cloud_layer_rows; }
  uint64_t losses = 0, survived = 0;   // losses of the cloud or its session, each once
  uint64_t replays = 0;                // sessions and streams that were opened again
  uint64_t kept_rows = 0;              // prompt rows taken from an earlier text
  uint64_t cached_rows = 0;            // prompt rows that no side computed, these included
  uint64_t drafted = 0, accepted = 0;  // guesses in steps, and the right ones
  double edge_ms = 0;                  // computing here
  // Parts of these times that no token waited for: moves that were prepared beside the text.
  double beside_cloud_ms = 0, beside_wire_ms = 0, beside_edge_ms = 0;
  double beside_ms() const { return beside_cloud_ms + beside_wire_ms + beside_edge_ms; }
  double ms = 0;  // total
  std::vector<Move> moves = {};

  SplitCounts& operator+=(const SplitCounts& other);
  // Subtracts rows that the cloud had in its cache from the rows computed in these layers.
  void spare(uint64_t cached, uint64_t layers);
};

struct FetchCounts {
  uint64_t downloaded = 0;  // bytes over the wire
  uint64_t from_cache = 0;  // bytes found valid on this disk
};

}  // namespace split::edge
