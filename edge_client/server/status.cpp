#include "edge_client/server/status.h"

#include <algorithm>

#include "base/json.h"
#include "edge_client/place/plan_report.h"

namespace split::edge {
namespace {

// Bytes of a stage in the checkpoint's own format.
uint64_t own_bytes(const wire::StageInfo& stage) {
  uint64_t bytes = 0;
  for (const wire::BlobInfo& blob : stage.blobs) {
    if (blob.format == stage.format) bytes += blob.bytes;
  }
  return bytes;
}

using Names = std::vector<std::string>;

bool has(const Names& stages, const std::string& name) {
  return std::ranges::find(stages, name) != stages.end();
}

// The stages from a point on that this machine is to run.
Names from_on(const Placement& place, Point from, const ModelConfig& config) {
  // A server with its head on the cloud has the norm for embeddings alone.
  const Point to = place.head_on_cloud ? Point(config.layers) : place.range.to;
  return StageRange{from, to}.stage_names(config.layers);
}

Names edge_stages(const Placement& place, const ModelConfig& config) {
  return place.local() ? from_on(place, place.range.from, config) : Names();
}

// The stages that the next token runs through here: in the latest text, or in one that begins now.
Names running_stages(const ServiceState& now) {
  const Placement& place = now.split ? now.split->place : *now.coming;
  Cut cut = place.cut;
  if (!now.answers.empty()) cut = now.answers.rbegin()->second.cut;
  if (cut.is_cloud()) return {};
  Placement whole = place;
  if (place.cut.is_cloud()) whole.range.to = Point::head();
  return from_on(whole, StageRange::from_block(cut.blocks(), whole.range.to).from, *now.config);
}

// Adds the stages whose weights a model has in this machine's memory.
void add_loaded(Names& all, const PlacedModel* model, const ModelConfig& config) {
  if (model == nullptr || !model->floor()) return;
  const Names more = StageRange{*model->floor(), model->place.range.to}.stage_names(config.layers);
  all.insert(all.end(), more.begin(), more.end());
}

// Progress of a stage; below 100 % until it can run.
Json landing_of(bool here, const StageProgress::Count* coming) {
  constexpr int kAll = 100;
  int percent = here ? kAll : 0;
  if (!here && coming != nullptr && coming->bytes > 0) {
    percent = std::min<int>(kAll - 1, static_cast<int>(kAll * coming->done / coming->bytes));
  }
  const bool known = !here && coming != nullptr && coming->seconds_left;
  return {{"percent", percent}, {"seconds_left", known ? Json(*coming->seconds_left) : Json()}};
}

Json ms_of(const std::map<std::string, double>& times, const std::string& stage) {
  const auto at = times.find(stage);
  return at == times.end() ? Json() : Json(at->second);
}

// Values that a placement may have, with the present one among them.
struct FormatWords {
  explicit FormatWords(const StageFormats& now) : all{"auto", "f32", "f16", "q8_0", "q4_0"} {
    const auto same = [&](const std::string& word) { return StageFormats::parse(word) == now; };
    const auto at = std::ranges::find_if(all, same);
    in_force = at == all.end() ? now.text() : *at;
    if (at == all.end()) all.push_back(in_force);
  }
  std::vector<std::string> all;
  std::string in_force;
};

Json json_of(Cut cut) { return cut.is_cloud() ? Json(cut.name()) : Json(cut.blocks()); }

Json answers_of(const ServiceState& now) {
  Json answers = Json::array();
  for (const auto& [id, place] : now.answers) {
    answers.push_back(
        {{"id", id}, {"cut", json_of(place.cut)}, {"tokens", place.tokens}, {"lane", place.mover}});
  }
  return answers;
}

}  // namespace

std::string status_json(const ServiceState& now) {
  const std::shared_ptr<PlacedModel>& split = now.split;
  const std::optional<Placement>& coming = now.coming;
  const bool there = now.cloud.reachable;
  Json json = {
      {"state", now.stopping ? "stopping"
                : split      ? "ready"
                             : "loading"},
      {"begins", now.begins},
      {"server",
       {{"url", now.origin},
        {"reachable", there},
        {"lost_s", now.cloud.lost_s ? Json(*now.cloud.lost_s) : Json()},
        {"stoppable", now.stops_cloud}}},
      {"model", nullptr},
      {"layers", nullptr},
      {"cut", split ? json_of(split->place.cut) : Json()},
      {"next_cut", coming ? json_of(coming->cut) : Json()},
      {"auto", now.follows},
      {"goes_on", split && split->leaves_lost_cloud},
      {"stages", Json::array()},
      {"goal", goal_name(now.goal)},
      {"plan", now.plan ? parse_json(to_json(*now.plan), 8, "the plan") : Json()},
      {"exact", now.exact ? Json(*now.exact) : Json()},
      {"answers", answers_of(now)},
      {"last", now.last_receipt.empty() ? Json() : parse_json(now.last_receipt, 8, "the receipt")}};
  if (!split && !coming) return json.dump() + "\n";

  const ModelConfig& config = *now.config;
  const std::string device = split && split->computes() ? split->device() : "none";
  const bool is_gpu = split && split->on_gpu();
  json["model"] = now.info.id;
  json["models"] = now.cloud.models;
  json["kind"] = config.encodes() ? "encoder" : "decoder";
  json["ranks"] = config.ranks;
  const FormatWords words(now.formats);
  json["format"] = words.in_force;
  json["formats"] = words.all;
  json["devices"] = now.devices;
  json["device_asked"] = now.device_asked;
  json["layers"] = config.layers;
  if (!now.personal.empty()) {
    json["tail"] = {{"model", now.personal}, {"first", now.highest}};
  }
  json["head"] = (split ? split->place : *coming).head_on_cloud ? "cloud" : "edge";
  json["device"] = {
      {"name", device}, {"kind", device.substr(0, device.find_first_of(" :"))}, {"is_gpu", is_gpu}};
  json["bytes_downloaded"] = now.fetched.downloaded;
  json["bytes_from_cache"] = now.fetched.from_cache;
  const Names here = split ? edge_stages(split->place, config) : Names();
  const Names soon = coming ? edge_stages(*coming, config) : Names();
  const Names running = running_stages(now);
  Names loaded = split ? running : Names();
  add_loaded(loaded, split.get(), config);
  add_loaded(loaded, now.grown.get(), config);
  const auto ms_here = split && split->batcher() != nullptr
                           ? split->batcher()->shard().stage_times()
                           : std::map<std::string, double>();
  for (const wire::StageInfo& stage : now.info.stages) {
    const bool on_edge = has(here, stage.name), comes = !on_edge && has(soon, stage.name);
    const auto count = now.progress.find(stage.name);
    const bool counted = (on_edge || comes) && count != now.progress.end();
    const uint64_t bytes = counted ? count->second.bytes : own_bytes(stage);
    const uint64_t done = comes ? (counted ? count->second.done : 0) : on_edge ? bytes : 0;
    const bool runs = has(running, stage.name);
    const std::string kind = now.model->stage(stage.name).kind();
    json["stages"].push_back({{"name", stage.name},
                              {"kind", kind.empty() ? Json() : Json(kind)},
                              {"where", on_edge || comes ? "edge" : "cloud"},
                              {"runs", runs ? "here" : "cloud"},
                              {"landing", landing_of(has(loaded, stage.name),
                                                     comes && counted ? &count->second : nullptr)},
                              {"device", on_edge || comes ? device : "cloud"},
                              {"is_gpu", is_gpu && (on_edge || comes)},
                              {"state", comes              ? done > 0 ? "downloading" : "absent"
                                        : on_edge || there ? "ready"
                                                           : "absent"},
                              {"ms", ms_of(runs ? ms_here : now.cloud.stage_ms, stage.name)},
                              {"bytes", bytes},
                              {"bytes_done", done}});
  }
  return json.dump() + "\n";
}

}  // namespace split::edge
