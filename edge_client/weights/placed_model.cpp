#include "edge_client/weights/placed_model.h"

namespace split::edge {

LinkOptions link_options(const PlacedModel& split, const ModelConfig& config,
                         const RetryOptions& retry, Waiter& waiter) {
  return {.info = split.info,
          .config = config,
          .retry = retry,
          .waiter = waiter,
          .wire = split.wire,
          .moves = split.deepest.has_value(),
          .other_bits = split.other_bits};
}

MoveOptions move_options(const PlacedModel& split) {
  MoveOptions options{.deepest = split.deepest ? Cut(*split.deepest) : split.place.cut,
                      .targets = {},
                      .leaves_lost_cloud = split.leaves_lost_cloud,
                      .pace = split.pace};
  for (const ScheduledMove& move : split.place.moves) {
    options.targets.push_back({.cut = move.cut, .at = move.at});
  }
  return options;
}

void describe(Receipt& receipt, const PlacedModel& split, const ModelConfig& config,
              const std::string& origin) {
  receipt.model = split.info.id;
  receipt.layers = config.layers;
  receipt.head_blocks = split.head_blocks;
  receipt.personal = split.personal;
  receipt.server = origin;
  receipt.profile = split.info.profile;
  receipt.cut = split.place.cut;
  receipt.device = split.device();
  receipt.edge_profile = split.profile;
  receipt.cloud_stages = split.place.on_cloud(config);
  receipt.edge_stages = split.place.on_edge(config);
  receipt.fetched = split.counts();
}

PlacedModel PlacedModel::at(Cut cut) const {
  PlacedModel other = *this;
  other.place.cut = cut;
  const Point to = growing ? place.range.to : Point::head();
  other.place.range = StageRange::from_block(cut.is_cloud() ? 0 : cut.blocks(), to);
  return other;
}

std::optional<Point> PlacedModel::floor() const {
  if (!tail || tail->floor() >= place.range.to) return std::nullopt;
  return tail->floor();
}

}  // namespace split::edge
