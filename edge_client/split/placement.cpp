#include "edge_client/split/placement.h"

#include <algorithm>
#include <cmath>

#include "step/names.h"

namespace split::edge {

void PlacementRequest::join(std::string_view server_profile) {
  if (names_arithmetic || server_profile != profile_name(Profile::kInt8)) return;
  profile = Profile::kInt8;
  own_blocks = true;
  formats = profile_formats(profile);
}

std::string Placement::on_edge(const ModelConfig& config) const {
  return local() ? range.describe(config.layers) : "nothing";
}

std::string Placement::on_cloud(const ModelConfig& config) const {
  if (config.encodes()) {
    const StageRange range{.to = cut.is_cloud() ? Point::pooled(config.layers, config.has_norm())
                                                : cut.blocks()};
    return cut > 0 ? range.describe(config.layers) : "nothing";
  }
  const bool norm_only = range.to == Point::norm() && !head_on_cloud;  // embeddings
  if (cut.is_cloud()) {
    return StageRange{.to = norm_only ? Point::norm() : Point::head()}.describe(config.layers);
  }
  std::string text = cut == 0 ? "" : StageRange{.to = cut.blocks()}.describe(config.layers);
  if (head_on_cloud) {
    text += (text.empty() ? "" : ", ") +
            StageRange{config.layers, Point::head()}.describe(config.layers);
  }
  return text.empty() ? "nothing" : text;
}

double head_in_blocks(const Model& model) {
  if (model.config().encodes()) return 0;
  const auto multiplications = [&](std::string_view stage) {
    uint64_t count = 0;
    for (const std::string& blob : model.stage(stage).blobs) {
      for (const WeightDecl& weight : model.blob(blob).weights) {
        if (weight.dims.size() > 1) count += element_count(weight.dims).value();
      }
    }
    return static_cast<double>(count);
  };
  return multiplications(names::kHead) / multiplications(cat(names::kBlock, 0));
}

namespace {

Placement place_at(const PlacementRequest& request, const ModelConfig& config, Cut cut,
                   bool head_on_cloud) {
  const int layers = config.layers;
  Placement place;
  place.cut = cut;
  if (place.cut > layers && !place.cut.is_cloud()) {
    throw Error(ErrorKind::kInput, cat("--cut: the model has ", layers, " blocks: expected 0..",
                                       layers, " or cloud, got ", place.cut.name()));
  }
  const bool stays = place.cut.is_cloud() && request.moves.empty();
  Cut lowest = stays ? Cut(default_cut(layers)) : place.cut.blocks(layers);
  for (const ScheduledMove& move : request.moves) {
    if (move.cut.is_cloud()) continue;
    if (move.cut > layers) {
      throw Error(ErrorKind::kInput,
                  cat("--moves: the model has ", layers, " blocks: expected cuts 0..", layers,
                      ", got ", move.cut.name()));
    }
    lowest = std::min(lowest, move.cut);
  }
  place.moves = request.moves;
  place.head_on_cloud = head_on_cloud && !request.embed && !config.encodes();
  if (config.encodes()) {  // its last hidden states are pooled
    place.range = StageRange::from_block(lowest.blocks(), Point::pooled(layers, config.has_norm()));
    return place;
  }
  const bool norm = ends_with_norm(request.embed, head_on_cloud, request.many_texts);
  place.range = StageRange::from_block(lowest.blocks(), norm            ? Point::norm()
                                                        : head_on_cloud ? Point(layers)
                                                                        : Point::head());
  return place;
}

}  // namespace

Placement place(const PlacementRequest& request, const Model& model, const CutBounds& bounds,
                const CloudSessions& sessions, bool cloud_lost) {
  const double size = head_in_blocks(model);
  const InitialPlacement begin = initial_placement({.cut = request.cut,
                                                    .fixed = default_cut(model.config().layers),
                                                    .bounds = bounds,
                                                    .follows = request.auto_cut,
                                                    .head_given = request.head.has_value(),
                                                    .head_cloud = request.head == Head::kCloud,
                                                    .embeds = request.embed,
                                                    .scheduled = !request.moves.empty(),
                                                    .head_blocks = size,
                                                    .cloud_lost = cloud_lost,
                                                    .sessions = sessions});
  Placement result = place_at(request, model.config(), begin.cut, begin.head_on_cloud);
  if (begin.head_is_large) result.head_blocks = size;
  bounds.expect("--cut", result.cut);
  for (const ScheduledMove& move : result.moves) bounds.expect("--moves", move.cut);
  if (bounds.head_here && result.head_on_cloud) {
    throw Error(ErrorKind::kInput, "--head: expected edge beside --tail, got cloud");
  }
  return result;
}

std::string head_line(const Placement& place) {
  if (place.head_blocks == 0) return "";
  return cat("the vocabulary's matrix is as large as ", std::lround(place.head_blocks),
             " blocks and stays on the cloud (--head edge)\n");
}

Placement place(const PlacementRequest& request, const ModelConfig& config) {
  return place_at(request, config, request.cut.value_or(default_cut(config.layers)),
                  request.head == Head::kCloud);
}

}  // namespace split::edge
