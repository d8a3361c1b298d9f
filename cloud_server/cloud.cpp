#include "cloud_server/cloud.h"

#include <algorithm>

#include "cloud_server/routes.h"
#include "serve/openapi.h"

namespace split::cloud {

ServedModel& Cloud::find(const std::string& id) {
  if (id.empty() && !models.empty()) return *models[0];
  for (const auto& model : models) {
    if (model->id() == id) return *model;
  }
  throw http::HttpError(404, "model_not_found", "no model of this id: GET /v1/models lists them",
                        "model");
}

void add_routes(http::Server& server, Cloud& cloud) {
  for (auto& model : cloud.models) {
    Batcher& batcher = model->batcher();
    batcher.on_pages_spent([&cloud, &batcher] { return cloud.sessions.evict_one(batcher); });
  }
  cloud.keys.guard(server);
  Routes all;
  for (const auto part : {description_routes, model_routes, forward_routes, session_routes,
                          legacy_routes, observed_routes}) {
    Routes routes = part(cloud);
    std::ranges::move(routes, std::back_inserter(all));
  }
  serve::add_routes(server, "SplitCompute cloud", cloud.version, std::move(all));
  observe(server, cloud);
}

}  // namespace split::cloud
