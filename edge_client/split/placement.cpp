#include "edge_client/split/placement.h"

#include <algorithm>

namespace split::edge {

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

std::string Placement::query(const ModelConfig& config, const StageFormats& formats) const {
  const int layers = config.layers, last = all_on_cloud ? cut : range.last;
  const std::string to = last == layers + 2 ? "head" : last == layers + 1 ? "norm" : cat(last);
  const bool from_tokens = !all_on_cloud && range.embed;
  return wire::model_query(formats.text(), from_tokens ? std::nullopt : std::optional(cut), to);
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
