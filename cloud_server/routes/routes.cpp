#include "cloud_server/routes/routes.h"

#include <algorithm>

#include "serve/openapi.h"
#include "wire/codes.h"

namespace split::cloud {
namespace {

// Routes on the event loop report the server's state, and need no models.
void expect_models(const Cloud& cloud, http::Route& route) {
  if (route.on_loop || route.path.starts_with("/app")) return;
  route.handler = [&cloud, handler = std::move(route.handler)](const http::Request& request) {
    if (!cloud.opened) {
      throw http::HttpError(503, wire::codes::kLoading, "the models are still being loaded", {},
                            {{"Retry-After", "1"}});
    }
    return handler(request);
  };
}

}  // namespace

void open_models(Cloud& cloud) {
  for (auto& model : cloud.models) {
    Batcher& batcher = model->batcher();
    model->begin_wishes(cloud.slo_ms, cloud.clock);
    batcher.on_pages_spent([&cloud, &batcher] { return cloud.sessions.evict_one(batcher); });
  }
  observe_models(cloud);
  cloud.opened = true;
}

void add_routes(http::Server& server, Cloud& cloud) {
  cloud.keys.guard(server);
  Routes all;
  for (const auto part : {description_routes, model_routes, forward_routes, text_routes,
                          session_routes, app_routes, legacy_routes, observed_routes}) {
    Routes routes = part(cloud);
    std::ranges::move(routes, std::back_inserter(all));
  }
  for (http::Route& route : all) expect_models(cloud, route);
  serve::add_routes(server.router(), "SplitCompute cloud", cloud.version, std::move(all), {403});
  observe(server, cloud);
  if (!cloud.models.empty()) open_models(cloud);
}

}  // namespace split::cloud
