// The cloud's routes over its models and sessions, one file for each part. main() and tests make a
// cloud and a server.
#pragma once

#include "cloud_server/state/cloud.h"

namespace split::cloud {

// Adds every route. The cloud outlives the server. Routes that need models answer 503 `loading`
// until open_models().
void add_routes(http::Server& server, Cloud& cloud);
// Lets routes use the cloud's models, which must not change after that; once, at any time.
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
// Add the metrics of the server, and of the models. Call observe() before the server runs.
void observe(http::Server& server, Cloud& cloud);
void observe_models(Cloud& cloud);

// Routes with weights as answers.
inline constexpr char kBlobRoute[] = "/v1/blobs/sha256/{hash}";
inline constexpr char kStageRoute[] = "/v1/models/{id}/stages/{stage}";

}  // namespace split::cloud
