// What a server says about itself: GET /split/status.
#include "edge_client/server/service.h"

#include <algorithm>

#include "base/json.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// How long a look whether the server is there is good.
constexpr std::chrono::milliseconds kLookAgain{1000};

// What a stage has in the checkpoint's own format.
uint64_t own_bytes(const wire::StageInfo& stage) {
  uint64_t bytes = 0;
  for (const wire::BlobInfo& blob : stage.blobs) {
    if (blob.format == stage.format) bytes += blob.bytes;
  }
  return bytes;
}

std::vector<std::string> edge_stages(const Placement& place, const ModelConfig& config) {
  if (!place.local(config)) return {};
  std::vector<std::string> stages = place.range.stages(config);
  // A server whose head is on the cloud has the norm for embeddings alone.
  if (place.head_on_cloud) std::erase(stages, "norm");
  return stages;
}

Json ms_of(const std::map<std::string, double>& times, const std::string& stage) {
  const auto at = times.find(stage);
  return at == times.end() ? Json() : Json(at->second);
}

Json cut_of(const Placement& place) { return place.all_on_cloud ? Json("cloud") : Json(place.cut); }

}  // namespace

// At the server, or what the last look saw.
Service::Probe Service::look() {
  const std::lock_guard lock(probe_mutex_);
  if (Clock::now() < probed_ + kLookAgain) return seen_;
  const std::shared_ptr<Split> split = present();
  seen_ = {};
  try {
    probe_->models();
    seen_.reachable = true;
    if (split) seen_.stage_ms = probe_->stage_times(split->info.id);
  } catch (const RemoteError& error) {
    seen_.reachable = error.status != 0;
  }
  probed_ = Clock::now();
  return seen_;
}

std::string Service::status() {
  const Probe probe = look();
  const bool there = probe.reachable;
  std::shared_ptr<Split> split;
  std::optional<Placement> coming;
  wire::ModelInfo info;
  std::string last;
  {
    const std::lock_guard lock(mutex_);
    split = split_;
    coming = coming_;
    if (split || coming) info = split ? split->info : coming_info_;
    last = last_receipt_;
  }
  Json json = {{"state", stopping_ ? "stopping"
                         : split   ? "ready"
                                   : "loading"},
               {"server", {{"url", pool_.origin()}, {"reachable", there}}},
               {"model", nullptr},
               {"layers", nullptr},
               {"cut", split ? cut_of(split->place) : Json()},
               {"next_cut", coming ? cut_of(*coming) : Json()},
               {"stages", Json::array()},
               {"last", last.empty() ? Json() : parse_json(last, 8, "the receipt")}};
  if (!split && !coming) return json.dump() + "\n";

  const ModelConfig& config = loader_.config();
  const std::string device = split ? split->device() : "none";
  json["model"] = info.id;
  json["layers"] = config.layers;
  json["head"] = (split ? split->place : *coming).head_on_cloud ? "cloud" : "edge";
  json["device"] = {{"name", device}, {"kind", device.substr(0, device.find_first_of(" :"))}};
  json["bytes_downloaded"] = split ? split->fetched.downloaded : 0;
  json["bytes_from_cache"] = split ? split->fetched.from_cache : 0;
  const auto has = [](const std::vector<std::string>& stages, const std::string& name) {
    return std::ranges::find(stages, name) != stages.end();
  };
  const auto here = split ? edge_stages(split->place, config) : std::vector<std::string>();
  const auto soon = coming ? edge_stages(*coming, config) : std::vector<std::string>();
  const auto counts = progress_.counts();
  const auto ms_here = split && split->batcher() != nullptr
                           ? split->batcher()->shard().stage_times()
                           : std::map<std::string, double>();
  for (const wire::StageInfo& stage : info.stages) {
    const bool on_edge = has(here, stage.name), comes = !on_edge && has(soon, stage.name);
    const auto count = counts.find(stage.name);
    const bool counted = (on_edge || comes) && count != counts.end();
    const uint64_t bytes = counted ? count->second.bytes : own_bytes(stage);
    const uint64_t done = comes ? (counted ? count->second.done : 0) : on_edge ? bytes : 0;
    json["stages"].push_back({{"name", stage.name},
                              {"where", on_edge || comes ? "edge" : "cloud"},
                              {"device", on_edge || comes ? device : "cloud"},
                              {"state", comes              ? done > 0 ? "downloading" : "absent"
                                        : on_edge || there ? "ready"
                                                           : "absent"},
                              {"ms", ms_of(on_edge ? ms_here : probe.stage_ms, stage.name)},
                              {"bytes", bytes},
                              {"bytes_done", done}});
  }
  return json.dump() + "\n";
}

}  // namespace split::edge
