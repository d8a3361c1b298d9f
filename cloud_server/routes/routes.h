// The cloud's routes over its models and sessions, one file for each part. main() makes a cloud and
// a server; so do the tests.
#pragma once

#include "cloud_server/state/cloud.h"

namespace split::cloud {

// Adds every route. The cloud outlives the server. Where its models are not there yet, the routes
// that need them answer 503 `loading` until they are opened.
void add_routes(http::Server& server, Cloud& cloud);
// Lets routes use the cloud's models, which no longer change; once, at any time.
void open_models(Cloud& cloud);

using Routes = std::vector<http::Route>;
Routes description_routes(Cloud& cloud);  // /, /livez, /readyz
Routes model_routes(Cloud& cloud);        // /v1/models..., /v1/blobs...
Routes forward_routes(Cloud& cloud);      // stateless forward
Routes text_routes(Cloud& cloud);         // completions, embeddings, tokens
Routes session_routes(Cloud& cloud);      // /v1/sessions...
Routes app_routes(Cloud& cloud);          // /app/
Routes legacy_routes(Cloud& cloud);       // the original web page's
Routes observed_routes(Cloud& cloud);     // /metrics
// Counts what the server does, and what the models do. The first before the server runs.
void observe(http::Server& server, Cloud& cloud);
void observe_models(Cloud& cloud);

// The routes whose answers are weights.
inline constexpr char kBlobRoute[] = "/v1/blobs/sha256/{hash}";
inline constexpr char kStageRoute[] = "/v1/models/{id}/stages/{stage}";

}  // namespace split::cloud
