// The parts of the cloud's routes, one file each; cloud.cpp puts them together.
#pragma once

#include "cloud_server/cloud.h"

namespace split::cloud {

using Routes = std::vector<http::Route>;
Routes description_routes(Cloud& cloud);  // /, /livez, /readyz
Routes model_routes(Cloud& cloud);        // /v1/models..., /v1/blobs...
Routes forward_routes(Cloud& cloud);      // stateless forward, completions
Routes session_routes(Cloud& cloud);      // /v1/sessions...
Routes legacy_routes(Cloud& cloud);       // the original web page's
Routes observed_routes(Cloud& cloud);     // /metrics
// Counts what the server does, and what the models do. The first before the server runs.
void observe(http::Server& server, Cloud& cloud);
void observe_models(Cloud& cloud);

// The routes whose answers are weights.
inline constexpr char kBlobRoute[] = "/v1/blobs/sha256/{hash}";
inline constexpr char kStageRoute[] = "/v1/models/{id}/stages/{stage}";

}  // namespace split::cloud
