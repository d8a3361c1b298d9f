#include "edge_client/place/counts.h"

#include <cmath>

namespace split::edge {
namespace {

// Adds the given members of `other` to those of `sum`.
template <typename Sum, typename... Figures>
void add(Sum& sum, const Sum& other, Figures Sum::*... figures) {
  ((sum.*figures += other.*figures), ...);
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  add(*this, other, &Traffic::bytes_up, &Traffic::bytes_down, &Traffic::cloud_ms, &Traffic::wire_ms,
      &Traffic::stream_ms);
  if (other.rows != DType::kF32) rows = other.rows;
  return *this;
}

TextWork& TextWork::operator+=(const TextWork& other) {
  add(*this, other, &TextWork::rows, &TextWork::cloud_layer_rows, &TextWork::heads,
      &TextWork::cloud_heads);
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
  using Counts = SplitCounts;
  add(*this, other, &Counts::traffic, &Counts::work, &Counts::steps, &Counts::trips,
      &Counts::cloud_layer_rows, &Counts::losses, &Counts::survived, &Counts::replays,
      &Counts::kept_rows, &Counts::cached_rows, &Counts::drafted, &Counts::accepted,
      &Counts::edge_ms, &Counts::beside_cloud_ms, &Counts::beside_wire_ms, &Counts::beside_edge_ms,
      &Counts::ms);
  moves.insert(moves.end(), other.moves.begin(), other.moves.end());
  return *this;
}

void SplitCounts::spare(uint64_t cached, uint64_t layers) {
  work.rows -= cached;
  work.cloud_layer_rows -= cached * layers;
  cloud_layer_rows -= cached * layers;
}

}  // namespace split::edge
