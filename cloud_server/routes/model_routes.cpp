// Models, their files and their weights.
#include <algorithm>

#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "serve/models.h"
#include "wire/codes.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

constexpr char kImmutable[] = "public, max-age=31536000, immutable";

http::Response weights_answer(FileView file) {
  return http::Response::bytes(std::move(file.pieces), std::move(file.owner),
                               std::string(wire::kTensorType), cat("\"", file.tag, "\""));
}

// Parses a query: the stages between two points, or all; formats, or all.
WeightStore::Listed listed_by(const ServedModel& model, const http::Request& request) {
  wire::check_query(request.query_params, {"format", "from", "to", "ready"});
  WeightStore::Listed listed;
  listed.range = wire::parse_range(request.query_params, model.config());
  listed.range.to = std::min(listed.range.to, model.last_point());
  if (const auto ready = request.query("ready")) {
    if (*ready != "true") wire::Fields::refuse("ready", "expected true, or no such field");
    listed.ready = true;
  }
  if (const auto format = request.query("format")) {
    try {
      listed.formats = StageFormats::parse(*format);
    } catch (const Error& error) {
      throw Error(ErrorKind::kInput, cat("'format': ", error.what()), "format");
    }
  }
  return listed;
}

wire::ModelInfo info_of(ServedModel& model, const std::string& blob_url,
                        const http::Request& request) {
  const WeightStore::Listed listed = listed_by(model, request);
  wire::ModelInfo info;
  info.id = model.id();
  info.config_json = model.checkpoint().config_json();
  const ModelConfig& config = model.config();
  info.architecture = config.model_type;
  info.max_context = config.max_positions;
  info.context = config.context;
  info.stops = config.stops;
  info.format = format_name(model.checkpoint().dtype());
  info.profile = profile_name(model.profile());
  const bool wide = model.batcher().shard().options().wide;
  info.generate_phase = wide ? names::kWide : names::kNarrow;
  info.phases_alike = model.batcher().shard().same_bits_in_both_phases();
  info.features = {"load", std::string(wire::kWireFeature)};
  // Only models that generate texts have sessions.
  if (!config.encodes()) {
    info.features.insert(info.features.begin(), {"to", "fill", "completions"});
    info.features.emplace_back(wire::kDigestFeature);
    info.features.emplace_back(wire::kAgainFeature);
  }
  if (model.batcher().prefixes() != nullptr) info.features.emplace_back(wire::kCacheFeature);
  info.row_parts = config.row_parts;
  info.bits = model.bits();
  for (const ServedModel::File& file : model.files()) info.files.push_back(file.info);
  info.kind = config.encodes() ? "encoder" : "decoder";
  info.dimensions = model.sentences().dimensions();
  info.pooling_json = model.sentences().describe();
  for (const auto& [name, text] : model.sentences().prompts()) info.prompts.push_back(name);
  if (!config.encodes()) {
    info.chat_json = serve::describe_chat(model.chat(), model.answer_format()).dump();
  }
  info.blob_url = blob_url;
  info.stages = model.weights().stages(listed);
  return info;
}

http::Response list_models(Cloud& cloud, const http::Request&) {
  std::vector<std::string> profiles;
  for (const auto& model : cloud.models) profiles.emplace_back(profile_name(model->profile()));
  return serve::model_list(cloud.ids(), profiles);
}

http::Response describe_model(Cloud& cloud, const http::Request& request) {
  ServedModel& model = cloud.find(request.path_params[0]);
  http::Response response =
      http::Response::json(200, to_json(info_of(model, cloud.blob_url, request)) + "\n");
  response.headers.set("Cache-Control", "no-cache");
  return response;
}

http::Response send_file(Cloud& cloud, const http::Request& request) {
  ServedModel& model = cloud.find(request.path_params[0]);
  std::string name = request.path_params[1];  // a file in a folder: with %2F, or as two segments
  if (request.path_params.size() > 2) name += "/" + request.path_params[2];
  for (const ServedModel::File& file : model.files()) {
    if (file.info.name != name) continue;
    const bool json = name.ends_with(".json"), weights = name.ends_with(".safetensors");
    return http::Response::bytes({as_bytes_of(*file.text)}, file.text,
                                 json      ? "application/json"
                                 : weights ? std::string(wire::kTensorType)
                                           : "text/plain; charset=utf-8",
                                 cat("\"", file.info.sha256, "\""));
  }
  throw http::HttpError(404, wire::codes::kNotFound,
                        "expected a file that the model's description lists: config.json ...");
}

// Answers the load, for an edge's choice of its cut.
http::Response describe_load(Cloud& cloud, const http::Request& request) {
  ServedModel& model = cloud.find(request.path_params[0]);
  Batcher& batcher = model.batcher();
  const LoadMeter::Load load = model.load_now();
  const wire::Load told{
      .busy = load.busy,
      .queue_depth = batcher.depth(),
      .sessions = cloud.sessions.size_of(batcher),
      .kv_free_bytes = batcher.shard().room_bytes() - batcher.shard().kept_bytes(),
      .p50_ms = load.p50_ms,
      .p99_ms = load.p99_ms,
      .costs = model.costs(),
      .note = model.cut_requests().told(),
      .price_hour = cloud.price_hour,
      .price_egress_gb = cloud.price_egress_gb};
  return unkept_json(200, to_json(told));
}

http::Response list_stages(Cloud& cloud, const http::Request& request) {
  ServedModel& model = cloud.find(request.path_params[0]);
  const auto times = model.batcher().shard().stage_times();
  Json data = Json::array();
  for (const Stage& stage : model.model().stages()) {
    const auto at = times.find(stage.name);
    data.push_back({{"stage", stage.name}, {"ms", at == times.end() ? Json() : Json(at->second)}});
  }
  const Json json = {{"object", "list"}, {"data", data}};
  return unkept_json(200, json.dump());
}

http::Response send_stage(Cloud& cloud, const http::Request& request) {
  ServedModel& model = cloud.find(request.path_params[0]);
  return weights_answer(
      model.weights().stage_file(request.path_params[1], request.query("format")));
}

http::Response send_blob(Cloud& cloud, const http::Request& request) {
  const std::string& hash = request.path_params[0];
  for (const bool wait : {false, true}) {  // waits only if no model has it
    if (!is_lower_hex(hash, 64)) break;
    for (const auto& model : cloud.models) {
      auto file = model->weights().blob(hash, wait);
      if (!file) continue;
      http::Response response = weights_answer(std::move(*file));
      response.headers.set("Cache-Control", kImmutable);
      return response;
    }
  }
  throw http::HttpError(404, "blob_not_found", "no blob of this sha256 (64 lowercase hex digits)");
}

}  // namespace

Routes model_routes(Cloud& cloud) {
  return {{.method = "GET",
           .path = "/v1/models",
           .summary = "Lists the models.",
           .handler = std::bind_front(list_models, std::ref(cloud))},
          {.method = "GET",
           .path = "/v1/models/{id}",
           .summary =
               "Returns a model's config, and per stage its blobs with checksums (the manifest).",
           .statuses = {200, 404},
           .query = {{"format", "string",
                      "Returns the blobs of this format only: f32, f16, bf16, q8_0 or q4_0."},
                     {"ready", "boolean",
                      "True: lists the blobs that are made already, and has none made."},
                     {"from", "string", "Leaves out the stages before this point."},
                     {"to", "string",
                      "Leaves out the stages behind this point: a number, norm or head."}},
           .handler = std::bind_front(describe_model, std::ref(cloud))},
          {.method = "GET",
           .path = "/v1/models/{id}/files/{file}",
           .summary = "Returns a file of the checkpoint, such as config.json or tokenizer.json.",
           .statuses = {200, 206, 304, 404, 416},
           .handler = std::bind_front(send_file, std::ref(cloud))},
          {.method = "GET",
           .path = "/v1/models/{id}/files/{folder}/{file}",
           .summary = "Returns a file of one of the checkpoint's folders: 1_Pooling/config.json.",
           .statuses = {200, 206, 304, 404, 416},
           .handler = std::bind_front(send_file, std::ref(cloud))},
          {.method = "GET",
           .path = "/v1/models/{id}/load",
           .summary = "Returns how busy the model is, and what its rows cost in milliseconds.",
           .statuses = {200, 404},
           .handler = std::bind_front(describe_load, std::ref(cloud))},
          {.method = "GET",
           .path = "/v1/models/{id}/stages",
           .summary = "Returns the milliseconds of each stage, measured on one small step in 32.",
           .statuses = {200, 404},
           .handler = std::bind_front(list_stages, std::ref(cloud))},
          {.method = "GET",
           .path = kStageRoute,
           .summary = "Returns a stage's weights as safetensors.",
           .answers = wire::kTensorType,
           .statuses = {200, 206, 304, 404, 416},
           .query = {{"format", "string", "Defaults to the checkpoint's own format."}},
           .handler = std::bind_front(send_stage, std::ref(cloud))},
          {.method = "GET",
           .path = kBlobRoute,
           .summary = "Returns weights by the SHA-256 of their bytes, as safetensors.",
           .answers = wire::kTensorType,
           .statuses = {200, 206, 304, 404, 416},
           .frequent = true,
           .handler = std::bind_front(send_blob, std::ref(cloud))}};
}

}  // namespace split::cloud
