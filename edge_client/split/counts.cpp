#include "edge_client/split/counts.h"

namespace split::edge {

Traffic& Traffic::operator+=(const Traffic& other) {
  bytes_up += other.bytes_up;
  bytes_down += other.bytes_down;
  cloud_ms += other.cloud_ms;
  wire_ms += other.wire_ms;
  if (other.rows != DType::kF32) rows = other.rows;
  return *this;
}

SplitCounts& SplitCounts::operator+=(const SplitCounts& other) {
  traffic += other.traffic;
  steps += other.steps;
  trips += other.trips;
  cloud_layer_rows += other.cloud_layer_rows;
  replays += other.replays;
  kept_rows += other.kept_rows;
  drafted += other.drafted;
  accepted += other.accepted;
  edge_ms += other.edge_ms;
  ms += other.ms;
  moves.insert(moves.end(), other.moves.begin(), other.moves.end());
  return *this;
}

}  // namespace split::edge
