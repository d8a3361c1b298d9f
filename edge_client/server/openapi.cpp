// What every route of the edge takes and answers: the table behind GET /openapi.json.
#include "edge_client/server/page.h"
#include "edge_client/server/serve.h"
#include "serve/chat.h"
#include "serve/completions.h"
#include "serve/embeddings.h"

namespace split::edge {
namespace {

constexpr char kJson[] = "application/json";
// 404: another model; 502: what the cloud refuses or answers without sense; 503 any route may.
const std::vector<int> kOfTheModel = {200, 404, 502};

const std::vector<serve::ApiRoute> kOwnRoutes = {
    {"GET", "/v1/models", "the one model"},
    {"GET", "/v1/models/{id}", "the same", kJson, {200, 404}},
    {"POST",
     "/v1/completions",
     "texts in OpenAI's shape",
     kJson,
     kOfTheModel,
     {},
     serve::completion_fields()},
    {"POST",
     "/v1/chat/completions",
     "an answer to messages, which become one text",
     kJson,
     kOfTheModel,
     {},
     serve::chat_fields()},
    {"POST",
     "/v1/embeddings",
     "the mean of each text's final states",
     kJson,
     kOfTheModel,
     {},
     serve::embedding_fields()},
    {"GET", "/split/status", "what runs where, and the last answer's receipt"},
    {"PUT",
     "/split/cut",
     "where answers are cut from now on",
     kJson,
     {200, 409, 502},
     {},
     {{"cut", "", "blocks on the cloud, or \"cloud\" for all of the model", true}}},
    {"POST",
     "/split/unsplit",
     "a completion that the cloud computes alone",
     kJson,
     kOfTheModel,
     {},
     serve::completion_fields()}};

}  // namespace

std::span<const serve::ApiRoute> api_routes() {
  static const std::vector<serve::ApiRoute> routes = [] {
    std::vector<serve::ApiRoute> all = serve::service_api();
    for (const auto& more : {kOwnRoutes, page_routes()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    // Who calls from elsewhere is refused; health is for all.
    for (serve::ApiRoute& route : all) {
      if (route.path != "/livez" && route.path != "/readyz") route.statuses.push_back(403);
    }
    return all;
  }();
  return routes;
}

}  // namespace split::edge
