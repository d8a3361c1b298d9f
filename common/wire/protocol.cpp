#include "wire/protocol.h"

#include <map>

#include "base/json.h"
#include "wire/fields.h"

namespace split::wire {

std::string model_path(std::string_view id) { return cat("/v1/models/", id); }
std::string model_query(std::string_view format, std::optional<int> from, std::string_view to) {
  return cat("?format=", format, from ? cat("&from=", *from) : "", "&to=", to);
}
std::string model_file_path(std::string_view id, std::string_view file) {
  return cat(model_path(id), "/files/", file);
}
std::string blob_path(std::string_view sha256) { return cat("/v1/blobs/sha256/", sha256); }
std::string model_forward_path(std::string_view id) { return cat(model_path(id), "/forward"); }
std::string session_path(std::string_view id) { return cat("/v1/sessions/", id); }
std::string session_forward_path(std::string_view id) { return cat(session_path(id), "/forward"); }

std::string to_json(const ModelInfo& info) {
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
               {"phases", {{"prompt", "narrow"}, {"generate", info.generate_phase}}},
               {"files", info.files}};
  json["stages"] = std::move(stages);
  if (!info.blob_url.empty()) json["blob_url"] = info.blob_url;
  return json.dump();
}

namespace {

BlobInfo parse_blob(const Json& json) {
  Fields fields(&json);
  BlobInfo blob;
  blob.name = fields.text("name");
  blob.format = fields.text("format");
  blob.bytes = static_cast<uint64_t>(fields.integer("bytes", 1, int64_t{1} << 50));
  blob.sha256 = fields.text("sha256");
  if (!is_lower_hex(blob.sha256, 64)) Fields::refuse("sha256", "expected 64 hex digits");
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
  if (!phases.is_object() || !phases.contains("generate") || !phases["generate"].is_string()) {
    Fields::refuse("phases", "expected an object with \"generate\"");
  }
  info.generate_phase = phases["generate"].text();
  info.files = fields.texts("files", 16);
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

std::vector<std::string> parse_model_list(std::string_view text) {
  Fields fields(text);
  const Json& data = fields.raw("data");
  if (!data.is_array() || data.size() > 4096) Fields::refuse("data", "expected a list of models");
  std::vector<std::string> ids;
  for (const Json& model : data) ids.push_back(Fields(&model).text("id"));
  return ids;
}

std::string to_json(const SessionRequest& request) {
  return Json{{"model", request.model}, {"from", request.from}, {"to", request.to}}.dump();
}

SessionRequest parse_session_request(std::string_view text) {
  Fields fields(text);
  SessionRequest request;
  request.model = fields.text_or("model", "");
  request.from = static_cast<int>(fields.integer_or("from", 0, 1024, 0));
  const bool cut = request.cut = fields.has("cut");
  if (cut && fields.has("to"))
    Fields::refuse("cut", "expected one of \"to\" and \"cut\", got both");
  request.to = static_cast<int>(fields.integer(cut ? "cut" : "to", 0, 1024));
  fields.ignore("to");
  fields.finish();
  return request;
}

namespace {

constexpr std::string_view phase_name(bool prompt) { return prompt ? "prompt" : "generate"; }
constexpr std::string_view rows_name(Rows rows) { return rows == Rows::kLast ? "last" : "all"; }

}  // namespace

std::string to_json(const StepRequest& request) {
  return Json{{"past", request.past},
              {"tokens", request.tokens},
              {"phase", phase_name(request.prompt)},
              {"rows", rows_name(request.rows)}}
      .dump();
}

std::string to_query(const StepRequest& request) {
  return cat("past=", request.past, "&phase=", phase_name(request.prompt),
             "&rows=", rows_name(request.rows));
}

bool parse_phase_is_prompt(std::string_view text) {
  if (text != "prompt" && text != "generate") {
    Fields::refuse("phase", "expected \"prompt\" or \"generate\", got " + shown(text));
  }
  return text == "prompt";
}

Rows parse_rows(std::string_view text) {
  if (text != "all" && text != "last") {
    Fields::refuse("rows", "expected \"all\" or \"last\", got " + shown(text));
  }
  return text == "last" ? Rows::kLast : Rows::kAll;
}

StepRequest parse_step_request(std::string_view text) {
  Fields fields(text);
  StepRequest request;
  request.past = static_cast<uint32_t>(fields.integer("past", 0, 1 << 30));
  request.tokens = fields.integers("tokens", 0, INT32_MAX, kMaxStepTokens);
  request.prompt = parse_phase_is_prompt(fields.text_or("phase", "prompt"));
  request.rows = parse_rows(fields.text_or("rows", "all"));
  fields.finish();
  return request;
}

}  // namespace split::wire
