#include "edge_client/split/placement.h"

#include <algorithm>

namespace split::edge {

bool TailRange::empty(const ModelConfig& config) const {
  return !embed && first >= config.layers && last <= config.layers;
}

std::vector<std::string> TailRange::stages(const ModelConfig& config) const {
  std::vector<std::string> names;
  if (embed) names.push_back("embed");
  for (int i = first; i < std::min(last, config.layers); ++i) names.push_back(cat("block.", i));
  if (last > config.layers) names.push_back("norm");
  if (last > config.layers + 1) names.push_back("head");
  return names;
}

std::string TailRange::describe(const ModelConfig& config) const {
  std::vector<std::string> parts;
  if (embed) parts.push_back("embed");
  const int end = std::min(last, config.layers);
  if (first + 1 == end) parts.push_back(cat("block ", first));
  if (first + 1 < end) parts.push_back(cat("blocks ", first, "-", end - 1));
  if (last > config.layers) parts.push_back("norm");
  if (last > config.layers + 1) parts.push_back("head");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.empty() ? "nothing" : text;
}

std::string Placement::on_edge(const ModelConfig& config) const {
  return local(config) ? range.describe(config) : "nothing";
}

std::string Placement::on_cloud(const ModelConfig& config) const {
  const int layers = config.layers;
  const bool norm_only = range.last == layers + 1 && !head_on_cloud;  // embeddings
  if (all_on_cloud) return TailRange{true, 0, layers + (norm_only ? 1 : 2)}.describe(config);
  std::string text = cut == 0 ? "" : TailRange{true, 0, cut}.describe(config);
  if (head_on_cloud) text += cat(text.empty() ? "" : ", ", "norm, head");
  return text.empty() ? "nothing" : text;
}

Placement place(const Options& options, const ModelConfig& config) {
  const int layers = config.layers;
  Placement place;
  place.cut = options.cut.value_or(std::max(0, layers - 2));
  if (place.cut > layers) {
    throw Error(ErrorKind::kInput, cat("--cut: the model has ", layers, " blocks: expected 0..",
                                       layers, " or cloud, got ", place.cut));
  }
  place.all_on_cloud = options.all_on_cloud;
  place.head_on_cloud = options.head_on_cloud && !options.embed;
  // A server answers embeddings too: the final norm is a few kilobytes.
  const int last = options.embed || (options.head_on_cloud && options.serve) ? layers + 1
                   : options.head_on_cloud                                   ? layers
                                                                             : layers + 2;
  place.range = {place.cut == 0, place.cut, last};
  return place;
}

}  // namespace split::edge
