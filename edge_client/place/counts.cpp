#include "edge_client/place/counts.h"

#include <cmath>

namespace split::edge {

Traffic& Traffic::operator+=(const Traffic& other) {
  bytes_up += other.bytes_up;
  bytes_down += other.bytes_down;
  cloud_ms += other.cloud_ms;
  wire_ms += other.wire_ms;
  stream_ms += other.stream_ms;
  if (other.rows != DType::kF32) rows = other.rows;
  return *this;
}

TextWork& TextWork::operator+=(const TextWork& other) {
  rows += other.rows;
  cloud_layer_rows += other.cloud_layer_rows;
  heads += other.heads;
  cloud_heads += other.cloud_heads;
  return *this;
}

std::optional<int> cloud_percent(const TextWork& work, int layers, double head_blocks) {
  const auto blocks = [&](uint64_t layer_rows, uint64_t heads) {
    return static_cast<double>(layer_rows) + head_blocks * static_cast<double>(heads);
  };
  const double all = blocks(work.rows * static_cast<uint64_t>(layers), work.heads);
  if (!(all > 0)) return std::nullopt;
  return static_cast<int>(std::lround(100 * blocks(work.cloud_layer_rows, work.cloud_heads) / all));
}

SplitCounts& SplitCounts::operator+=(const SplitCounts& other) {
  traffic += other.traffic;
  work += other.work;
  steps += other.steps;
  trips += other.trips;
  cloud_layer_rows += other.cloud_layer_rows;
  losses += other.losses;
  survived += other.survived;
  replays += other.replays;
  kept_rows += other.kept_rows;
  drafted += other.drafted;
  accepted += other.accepted;
  edge_ms += other.edge_ms;
  beside_cloud_ms += other.beside_cloud_ms;
  beside_wire_ms += other.beside_wire_ms;
  beside_edge_ms += other.beside_edge_ms;
  ms += other.ms;
  moves.insert(moves.end(), other.moves.begin(), other.moves.end());
  return *this;
}

}  // namespace split::edge
