#include "serve/models.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "wire/codes.h"

namespace split::serve {
namespace {

constexpr size_t kNamed = 3;  // ids in one line

std::string entry(const std::string& id) {
  return cat("{\"id\":", json_quote(id),
             ",\"object\":\"model\",\"created\":0,\"owned_by\":\"splitcompute\"}");
}

}  // namespace

http::Response model_list(std::span<const std::string> ids, std::span<const std::string> profiles) {
  std::string data;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string json = entry(ids[i]);
    if (!profiles.empty()) {
      json.insert(json.size() - 1, cat(",\"profile\":", json_quote(profiles[i])));
    }
    data += cat(data.empty() ? "" : ",", json);
  }
  return http::Response::json(200, cat("{\"object\":\"list\",\"data\":[", data, "]}\n"));
}

http::Response model_entry(const std::string& id, const Json& chat) {
  std::string json = entry(id);
  if (!chat.is_null()) json.insert(json.size() - 1, cat(",\"chat\":", chat.dump()));
  return http::Response::json(200, json + "\n");
}

Json describe_chat(const ChatTemplate* chat, const AnswerFormat& format) {
  Json json = chat != nullptr
                  ? chat->describe()
                  : Json{{"template", nullptr}, {"tools", false}, {"unsupported", nullptr}};
  json["calls"] = format.describe_calls();
  json["reasoning"] = format.thinks();
  return json;
}

void refuse_while_loading() {
  throw http::HttpError(503, wire::codes::kLoading, "the model is still being loaded", {},
                        {{"Retry-After", "1"}});
}

void refuse_model(std::span<const std::string> ids) {
  std::string names;
  for (const std::string& id : ids.first(std::min(ids.size(), kNamed))) {
    names += cat(names.empty() ? "" : ", ", id);
  }
  if (ids.size() > kNamed) names += ", and others (GET /v1/models)";
  throw http::HttpError(404, "model_not_found",
                        cat("no model of this id: expected ", names,
                            "; edge_client --serve --any-model answers for any name"),
                        "model");
}

void refuse_without_head() {
  throw http::HttpError(400, "no_head",
                        "the model is an encoder: it has no head, and writes no text");
}

}  // namespace split::serve
