// What the server is, in ten lines that can be pasted, and whether it is well.
#include "cloud_server/cloud.h"

namespace split::cloud {

ServedModel& Cloud::find(const std::string& id) {
  if (id.empty() && !models.empty()) return *models[0];
  for (const auto& model : models) {
    if (model->id() == id) return *model;
  }
  throw http::HttpError(404, "model_not_found", "no model of this id: GET /v1/models lists them",
                        "model");
}

bool wants_tensors(const http::Request& request) {
  const auto accept = request.headers.get("Accept");
  return accept && accept->find(wire::kTensorType) != std::string_view::npos;
}

bool sends_tensors(const http::Request& request) {
  const auto type = request.headers.get("Content-Type");
  return type && type->starts_with(wire::kTensorType);
}

void add_description_routes(http::Server& server, Cloud& cloud) {
  server.route("GET", "/", [&cloud](const http::Request& request) {
    const std::string id = cloud.models[0]->id();
    const std::string host(request.headers.get("Host").value_or("127.0.0.1:8080"));
    const std::string at = "http://" + host;
    return http::Response::text(
        200,
        cat("SplitCompute ", cloud.version, ": one model, two machines. Lines to try:\n", "curl ",
            at, "/v1/models/", id, "                    # stages and their blobs\n", "curl ", at,
            "/v1/models/", id, "/forward -d '{\"prompt\":\"Once upon\",\"top\":5}'\n",  //
            "curl ", at, "/v1/models/", id,
            "/forward -d '{\"prompt\":\"Once upon\",\"to\":2,\"rows\":\"last\"}'  # what enters "
            "block 2\n",
            "curl ", at, "/v1/models/", id,
            "/stages/norm -o norm.safetensors     # a stage's weights\n", "curl ", at,
            "/v1/completions -d '{\"prompt\":\"Once upon a time\",\"max_tokens\":32}'\n",
            "curl -N ", at, "/v1/completions -d '{\"prompt\":\"The king\",\"stream\":true}'\n",  //
            "curl ", at, "/v1/sessions -d '{\"model\":\"", id,
            "\",\"cut\":4}'  # then POST its steps\n", "curl ", at, "/readyz\n",
            "edge_client --server ", at, " --prompt 'Once upon a time'\n"));
  });
  server.route("GET", "/livez",
               [](const http::Request&) { return http::Response::text(200, "ok\n"); });
  server.route("GET", "/readyz", [&cloud](const http::Request&) {
    return cloud.ready ? http::Response::text(200, "ready\n")
                       : http::Response::text(503, "not ready\n");
  });
}

void add_routes(http::Server& server, Cloud& cloud) {
  for (auto& model : cloud.models) {
    Batcher& batcher = model->batcher();
    batcher.on_pages_spent([&cloud, &batcher] { return cloud.sessions.evict_one(batcher); });
  }
  add_description_routes(server, cloud);
  add_model_routes(server, cloud);
  add_forward_routes(server, cloud);
  add_session_routes(server, cloud);
}

}  // namespace split::cloud
