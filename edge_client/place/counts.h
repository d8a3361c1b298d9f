// The cost of a text: bytes and ms on the way, at the cloud and here, and the weights before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/place/why.h"
#include "tensor/shape.h"

namespace split::edge {

// The cost of the steps of a text.
struct Traffic {
  uint64_t bytes_up = 0, bytes_down = 0;  // bodies
  double cloud_ms = 0;                    // of which the server says that it took it
  double wire_ms = 0;                     // the rest of the time until the answer
  double stream_ms = 0;                   // of streams: the cloud's, and the line's
  DType rows = DType::kF32;               // that hidden states were rounded to, if they were

  Traffic& operator+=(const Traffic& other);
};

// The cut moved.
struct Move {
  uint32_t at = 0;                   // tokens out
  static constexpr int kCloud = -1;  // all of the model there
  int from = 0, to = 0;
  Why why = Why::kAsked;
  double token_ms = 0, there_ms = 0;  // of its last tokens, and foreseen there; 0: not known
  uint64_t rows = 0, bytes = 0;       // computed again for it, and on the way
  double pause_ms = 0;                // of the token behind it
  // The move took the cloud so many, with those prepared in vain since the move before it; and it
  // spared the cloud so many until the text's end, below zero where it gave the cloud work.
  uint64_t cloud_layer_rows_cost = 0;
  int64_t cloud_layer_rows_saved = 0;
};

// The rows that led to a text, each once: through blocks, and those whose logits were taken.
struct TextWork {
  uint64_t rows = 0, cloud_layer_rows = 0;  // times layers
  uint64_t heads = 0, cloud_heads = 0;

  TextWork& operator+=(const TextWork& other);
};

// The cloud's part of it in whole percent, where the head multiplies as much as so many blocks;
// none where there is no work.
std::optional<int> cloud_percent(const TextWork& work, int layers, double head_blocks);

struct SplitCounts {
  Traffic traffic;
  TextWork work;
  uint64_t steps = 0;             // calls of run()
  uint64_t trips = 0;             // to the cloud that tokens waited for: a session's steps, streams
  uint64_t cloud_layer_rows = 0;  // rows times layers that ran on the cloud
  // Rows among these that were for moves, after a loss, and of wrong guesses.
  uint64_t cloud_layer_rows_again() const { return cloud_layer_rows - work.cloud_layer_rows; }
  uint64_t losses = 0, survived = 0;   // of the cloud or its session; each once
  uint64_t replays = 0;                // sessions and streams that were begun again
  uint64_t kept_rows = 0;              // of prompts, that were there from an earlier text
  uint64_t cached_rows = 0;            // of prompts, that no side that ran computed; these too
  uint64_t drafted = 0, accepted = 0;  // guesses that steps had, and those that saved one
  double edge_ms = 0;                  // computing here
  // Parts of these times that no token waited for: a move was prepared beside the text.
  double beside_cloud_ms = 0, beside_wire_ms = 0, beside_edge_ms = 0;
  double beside_ms() const { return beside_cloud_ms + beside_wire_ms + beside_edge_ms; }
  double ms = 0;  // in all
  std::vector<Move> moves = {};

  SplitCounts& operator+=(const SplitCounts& other);
  // Takes these rows, which the cloud had in its cache, out of what was computed in these layers.
  void spare(uint64_t cached, uint64_t layers);
};

// The load, as the cloud says it.
struct CloudHints {
  std::optional<int> want;  // the cut, or a lower one, that it wishes for; none: any
  int draft = 7;            // guesses that a step may have
  uint32_t cached = 0;      // rows of what it was asked for that it did not compute
  bool operator==(const CloudHints&) const = default;
};

struct FetchCounts {
  uint64_t downloaded = 0;  // bytes that came over the wire
  uint64_t from_cache = 0;  // and that were good on this disk
};

}  // namespace split::edge
