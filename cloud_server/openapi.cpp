// What every route takes and answers: the table behind GET /openapi.json.
#include "cloud_server/cloud.h"
#include "serve/completions.h"

namespace split::cloud {
namespace {

constexpr char kJson[] = "application/json", kTensors[] = "application/octet-stream",
               kText[] = "text/plain; charset=utf-8";

const std::vector<serve::ApiField> kSessionBody = {
    {"model", "string", "of GET /v1/models; without it the first"},
    {"from", "integer", "the point that this session's rows enter at (0: tokens)"},
    {"to", "integer", "the point that they leave at"},
    {"cut", "integer", "the same as to"}};

const std::vector<serve::ApiRoute> kOwnRoutes = {
    {"GET", "/", "ten lines to try", kText},
    {"GET", "/v1/models", "the models"},
    {"GET",
     "/v1/models/{id}",
     "a model's config, stages and blobs",
     kJson,
     {200, 404},
     {{"format", "string", "only the blobs of this format"},
      {"from", "string", "only the stages from this point on"},
      {"to", "string", "and up to this one: a number, norm or head"}}},
    {"GET",
     "/v1/models/{id}/files/{file}",
     "a file of the checkpoint",
     kJson,
     {200, 206, 304, 404, 416}},
    {"GET",
     "/v1/models/{id}/stages",
     "each stage's ms in the last step of few rows that ran stage by stage",
     kJson,
     {200, 404}},
    {"GET",
     "/v1/models/{id}/stages/{stage}",
     "a stage's weights as safetensors",
     kTensors,
     {200, 206, 304, 404, 416},
     {{"format", "string", "without it the checkpoint's own"}}},
    {"GET",
     "/v1/blobs/sha256/{hash}",
     "weights by the hash of their bytes",
     kTensors,
     {200, 206, 304, 404, 416}},
    {"POST",
     "/v1/models/{id}/forward",
     "any range of a model, without a session",
     kJson,
     {200, 404},
     {{"from", "integer", "with hidden states: the point that they enter at"},
      {"to", "string", "with hidden states, as in the body"},
      {"rows", "string", "with hidden states, as in the body"},
      {"top", "integer", "with hidden states, as in the body"}},
     {{"prompt", "string", "a text, or"},
      {"tokens", "array", "ids"},
      {"special", "boolean", "special tokens in the prompt are read as such"},
      {"from", "integer", "0"},
      {"to", "", "a point: 0..L, norm or head"},
      {"rows", "", "all, last or a list of rows"},
      {"top", "integer", "only the likeliest tokens"}},
     {},
     kJson,
     {kTensors}},
    {"POST",
     "/v1/completions",
     "texts in OpenAI's shape",
     kJson,
     {200, 404},
     {},
     serve::completion_fields()},
    {"PUT",
     "/v1/sessions/{id}",
     "opens a session of this id: 32 hex digits",
     kJson,
     {200, 201, 404, 409},
     {},
     kSessionBody,
     {"to", "cut"}},
    {"POST", "/v1/sessions", "opens a session", kJson, {201, 404}, {}, kSessionBody, {"to", "cut"}},
    {"GET", "/v1/sessions/{id}", "a session and what it cost so far", kJson, {200, 404}},
    {"DELETE", "/v1/sessions/{id}", "ends a session", "", {204, 404}},
    {"POST",
     "/v1/sessions/{id}/forward",
     "one step of a session",
     kTensors,
     {200, 404, 409},
     {{"past", "integer", "with hidden states, as in the body"},
      {"phase", "string", "with hidden states, as in the body"},
      {"rows", "string", "with hidden states, as in the body"}},
     {{"past", "integer", "positions that stay; what was behind them is forgotten", true},
      {"tokens", "array", "ids behind these", true},
      {"phase", "string", "prompt or generate"},
      {"rows", "string", "all or last"}},
     {},
     kJson,
     {kTensors}},
    {"GET",
     "/get_model_config",
     "of the original web page, with --legacy-routes",
     kJson,
     {200, 404}},
    {"GET",
     "/get_model_weights/{name}",
     "of the original web page, with --legacy-routes",
     kJson,
     {200, 404}},
    {"POST",
     "/",
     "partial state for the original web page, with --legacy-routes",
     kJson,
     {200, 404},
     {},
     {{"input_text", "string", "the text so far", true},
      {"offline_layers", "integer", "layers that the page computes", true}},
     {},
     "application/x-www-form-urlencoded",
     {"multipart/form-data"}}};

}  // namespace

std::span<const serve::ApiRoute> api_routes() {
  static const std::vector<serve::ApiRoute> routes = [] {
    std::vector<serve::ApiRoute> all = serve::service_api();
    all.insert(all.end(), kOwnRoutes.begin(), kOwnRoutes.end());
    return all;
  }();
  return routes;
}

void add_api_route(http::Server& server, const Cloud& cloud) {
  serve::add_openapi_route(server, "SplitCompute cloud", cloud.version, api_routes());
}

}  // namespace split::cloud
