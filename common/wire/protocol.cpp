#include "wire/protocol.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "models/config_reader.h"
#include "step/phase.h"
#include "wire/fields.h"

namespace split::wire {

std::string model_path(std::string_view id) { return cat("/v1/models/", id); }
std::string model_query(std::string_view format, const StageRange& range) {
  const std::string from = range.from.is_tokens() ? "" : "&from=" + range.from.name();
  return cat("?format=", format, from, "&to=", range.to.name());
}
std::string model_file_path(std::string_view id, std::string_view file) {
  return cat(model_path(id), "/files/", file);
}
std::string blob_path(std::string_view sha256) { return cat("/v1/blobs/sha256/", sha256); }
std::string model_forward_path(std::string_view id) { return cat(model_path(id), "/forward"); }
std::string session_path(std::string_view id) { return cat("/v1/sessions/", id); }
std::string session_forward_path(std::string_view id) { return cat(session_path(id), "/forward"); }

std::string to_json(const ModelInfo& info) {
  Json files = Json::array();
  for (const FileInfo& file : info.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  Json stages = Json::array();
  for (const StageInfo& stage : info.stages) {
    Json blobs = Json::array();
    for (const BlobInfo& blob : stage.blobs) {
      blobs.push_back({{"name", blob.name},
                       {"format", blob.format},
                       {"bytes", blob.bytes},
                       {"sha256", blob.sha256},
                       {"chunks", blob.chunks}});
    }
    stages.push_back({{"name", stage.name}, {"format", stage.format}, {"blobs", std::move(blobs)}});
  }
  Json json = {{"id", info.id},
               {"object", "model"},
               {"config", parse_json(info.config_json, 16, "[config.json]")},
               {"format", info.format},
               {"profile", info.profile},
               {"phases",
                {{std::string(wire_name(Phase::kPrompt)), names::kNarrow},
                 {std::string(wire_name(Phase::kGenerate)), info.generate_phase}}},
               {"phases_alike", info.phases_alike},
               {"features", info.features},
               {"bits", info.bits},
               {"kind", info.kind},
               {"architecture", info.architecture},
               {"stops", info.stops},
               {"chat", parse_json(info.chat_json, 8, "the chat")},
               {"files", std::move(files)}};
  json["stages"] = std::move(stages);
  if (!info.pooling_json.empty()) {
    json["dimensions"] = info.dimensions;
    json["pooling"] = parse_json(info.pooling_json, 8, "the pooling");
    json["prompts"] = info.prompts;
  }
  for (const RowPart& part : info.row_parts) {
    json["row_parts"].push_back({{"name", part.name},
                                 {"columns", part.columns},
                                 {"each", part.each},
                                 {"from", part.first},
                                 {"to", part.last}});
  }
  if (info.context > 0) {
    json["max_context"] = info.max_context;
    json["context"] = info.context;
  }
  if (!info.blob_url.empty()) json["blob_url"] = info.blob_url;
  return json.dump();
}

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;  // limit of a file or blob

std::string parse_sha256(Fields& fields) {
  std::string sha256 = fields.text("sha256");
  if (!is_lower_hex(sha256, 64)) Fields::refuse("sha256", "expected 64 hex digits");
  return sha256;
}

std::vector<FileInfo> parse_files(const Json& json) {
  constexpr size_t kMost = 16;
  if (!json.is_array() || json.size() > kMost) {
    Fields::refuse("files", cat("expected a list of at most ", kMost, " files"));
  }
  std::vector<FileInfo> files;
  for (const Json& one : json) {
    if (!one.is_object()) {  // an earlier server's form
      Fields::refuse("files", "expected objects with \"name\", \"bytes\" and \"sha256\"");
    }
    Fields fields(&one);
    FileInfo file;
    file.name = fields.text("name");
    file.bytes = static_cast<uint64_t>(fields.integer("bytes", 0, kMostBytes));
    file.sha256 = parse_sha256(fields);
    if (std::ranges::find(files, file.name, &FileInfo::name) != files.end()) {
      Fields::refuse("files", cat("expected each file once, got ", shown(file.name), " twice"));
    }
    files.push_back(std::move(file));
  }
  return files;
}

BlobInfo parse_blob(const Json& json) {
  Fields fields(&json);
  BlobInfo blob;
  blob.name = fields.text("name");
  blob.format = fields.text("format");
  blob.bytes = static_cast<uint64_t>(fields.integer("bytes", 1, kMostBytes));
  blob.sha256 = parse_sha256(fields);
  const uint64_t count = chunk_count(blob.bytes);
  const Json& chunks = fields.raw("chunks");
  if (!chunks.is_array() || chunks.size() != count) {
    Fields::refuse("chunks", cat("expected a list of ", count, " hashes for ", blob.bytes,
                                 " bytes, got ", chunks.is_array() ? cat(chunks.size()) : "none"));
  }
  for (const Json& chunk : chunks) {
    if (!chunk.is_string() || !is_lower_hex(chunk.text(), 64)) {
      Fields::refuse("chunks", "expected 64 hex digits each");
    }
    blob.chunks.push_back(chunk.text());
  }
  if (count == 1 && blob.chunks[0] != blob.sha256) {
    Fields::refuse("chunks", "expected the blob's sha256 for its only chunk");
  }
  return blob;
}

std::vector<RowPart> parse_row_parts(Fields& fields) {
  std::vector<RowPart> parts;
  if (!fields.has("row_parts")) return parts;
  const Json& all = fields.raw("row_parts");
  if (!all.is_array() || all.size() > 4096) Fields::refuse("row_parts", "expected a list of parts");
  for (const Json& one : all) {
    Fields entry(&one);
    RowPart& part = parts.emplace_back();
    part.name = entry.text("name");
    part.columns = entry.integer("columns", 1, kMaxSize);
    part.each = entry.integer("each", 0, part.columns);
    part.first = static_cast<int>(entry.integer("from", 0, kMaxSize));
    part.last = static_cast<int>(entry.integer("to", part.first, kMaxSize));
  }
  return parts;
}

}  // namespace

ModelInfo parse_model_info(std::string_view text) {
  Fields fields(text);
  ModelInfo info;
  info.id = fields.text("id");
  const Json& config = fields.raw("config");
  if (!config.is_object()) Fields::refuse("config", "expected an object");
  info.config_json = config.dump();
  info.format = fields.text("format");
  info.profile = fields.text("profile");
  const Json& phases = fields.raw("phases");
  const Json* const generate =
      phases.is_object() ? phases.find(wire_name(Phase::kGenerate)) : nullptr;
  if (generate == nullptr || !generate->is_string()) {
    Fields::refuse("phases", "expected an object with \"generate\"");
  }
  info.generate_phase = generate->text();
  // An earlier server has none of these.
  if (fields.has("features")) info.features = fields.texts("features", 64);
  info.bits = fields.text_or("bits", "");
  info.kind = fields.text_or("kind", "decoder");
  info.architecture = fields.text_or("architecture", "");
  constexpr int64_t kMostPositions = 1 << 24;
  const auto positions = [&](const char* name) {
    return fields.has(name) ? static_cast<int>(fields.integer(name, 1, kMostPositions)) : 0;
  };
  info.max_context = positions("max_context");
  info.context = positions("context");
  if (fields.has("stops")) {
    const Json& stops = fields.raw("stops");
    if (!stops.is_array() || stops.size() > 256) Fields::refuse("stops", "expected a list");
    for (const Json& stop : stops) {
      if (!stop.is_number_integer() || stop.get<int64_t>() < 0 || stop.get<int64_t>() >= 1 << 24) {
        Fields::refuse("stops", "expected tokens");
      }
      info.stops.push_back(stop.get<int>());
    }
  }
  info.row_parts = parse_row_parts(fields);
  info.phases_alike = fields.boolean_or("phases_alike", false);
  info.files = parse_files(fields.raw("files"));
  info.blob_url = fields.text_or("blob_url", "");
  const Json& stages = fields.raw("stages");
  if (!stages.is_array() || stages.size() > 4096)
    Fields::refuse("stages", "expected a list of stages");
  std::map<std::string, BlobSums> known;
  for (const Json& stage : stages) {
    Fields entry(&stage);
    StageInfo& added = info.stages.emplace_back();
    added.name = entry.text("name");
    added.format = entry.text("format");
    const Json& blobs = entry.raw("blobs");
    if (!blobs.is_array() || blobs.size() > 4096)
      Fields::refuse("blobs", "expected a list of blobs");
    for (const Json& blob : blobs) {
      added.blobs.push_back(parse_blob(blob));
      const BlobSums& sums = added.blobs.back();
      if (known.emplace(sums.sha256, sums).first->second != sums) {
        Fields::refuse("sha256", "expected one size and one list of chunks for one hash");
      }
    }
  }
  return info;
}

std::vector<ListedModel> parse_model_list(std::string_view text) {
  Fields fields(text);
  const Json& data = fields.raw("data");
  if (!data.is_array() || data.size() > 4096) Fields::refuse("data", "expected a list of models");
  std::vector<ListedModel> models;
  for (const Json& model : data) {
    Fields each(&model);
    models.push_back({each.text("id"), each.text_or("profile", "")});
  }
  return models;
}

std::string to_json(const SessionRequest& request) {
  Json json = {{"model", request.model},
               {"from", request.range.from.block()},
               {"to", request.range.to.block()}};
  if (!request.cache_prompt) json["cache_prompt"] = false;
  if (!request.cache_salt.empty()) json["cache_salt"] = request.cache_salt;
  return json.dump();
}

SessionRequest parse_session_request(std::string_view text, MemoryShare* memory) {
  Fields fields(text, memory);
  SessionRequest request;
  request.model = fields.text_or("model", "");
  const auto from = static_cast<int>(fields.integer_or("from", 0, 1024, 0));
  const bool cut = request.cut = fields.has("cut");
  if (cut && fields.has("to"))
    Fields::refuse("cut", "expected one of \"to\" and \"cut\", got both");
  const auto to = static_cast<int>(fields.integer(cut ? "cut" : "to", 0, 1024));
  request.range = StageRange::from_block(from, to);
  fields.ignore("to");
  request.cache_prompt = fields.boolean_or("cache_prompt", true);
  request.cache_salt = read_salt(fields);
  fields.finish();
  return request;
}

}  // namespace split::wire
