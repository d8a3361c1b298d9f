// What the server is, in ten lines that can be pasted, and whether it is well.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cloud_server/cloud.h"
#include "serve/observe.h"
#include "serve/openapi.h"
#include "wire/fields.h"

namespace split::cloud {

ServedModel& Cloud::find(const std::string& id) {
  if (id.empty() && !models.empty()) return *models[0];
  for (const auto& model : models) {
    if (model->id() == id) return *model;
  }
  throw http::HttpError(404, "model_not_found", "no model of this id: GET /v1/models lists them",
                        "model");
}

int point_named(const std::string& text, int layers) {
  if (text == "norm") return layers + 1;
  if (text == "head") return layers + 2;
  const auto point = parse_u64(text, 0, static_cast<uint64_t>(layers));
  if (!point) wire::Fields::refuse("to", cat("expected 0..", layers, ", \"norm\" or \"head\""));
  return static_cast<int>(*point);
}

Asker asker_of(const http::Request& request) { return {request.principal, request.client_gone}; }

void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job) {
  cloud.keys.expect_rows(request.principal);
  cloud.keys.took_rows(request.principal, job.rows);
  job.asker = asker_of(request);
  model.batcher().run(job);
}

void describe_run(http::Response& response, const Job& job) {
  response.headers.set("Cache-Control", "no-store");
  response.headers.set("Server-Timing",
                       cat("queue;dur=", job.queue_ms, ", compute;dur=", job.compute_ms));
}

bool wants_tensors(const http::Request& request) {
  const auto accept = request.headers.get("Accept");
  return accept && accept->find(wire::kTensorType) != std::string_view::npos;
}

bool sends_tensors(const http::Request& request) {
  const auto type = request.headers.get("Content-Type");
  return type && type->starts_with(wire::kTensorType);
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

void refuse_overflow(bool from_hidden) {
  if (from_hidden)
    wire::Fields::refuse("hidden", "its values are so large that the result is not finite");
  throw Error(ErrorKind::kDevice, "[forward] the result is not finite");
}

namespace {

// What the client calls us, as long as a shell takes it for one word.
std::string origin_of(const http::Request& request) {
  const std::string host(request.headers.get("Host").value_or(""));
  const bool plain = !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-._:[]", c) != nullptr;
  });
  return cat(request.secure ? "https://" : "http://", plain ? host : "127.0.0.1:8080");
}

// Ten lines, each of which can be pasted and works: also for a model of one block or without a
// tokenizer.
std::string curl_lines(const http::Request& request, const ServedModel& model) {
  const std::string at = "curl " + origin_of(request), of_model = at + "/v1/models/" + model.id();
  const bool text = model.tokenizer() != nullptr;
  const auto prompt = [&](std::string_view words) {
    return text ? cat("\"prompt\":\"", words, "\"") : "\"prompt\":[0,1]";
  };
  const std::string partial = text ? "\"prompt\":\"Once upon\"" : "\"tokens\":[0,1]";
  const int layers = model.config().layers;
  return cat(at, "/readyz\n",                                                                     //
             at, "/v1/models\n",                                                                  //
             of_model, "  # stages and their blobs\n",                                            //
             of_model, "/files/config.json\n",                                                    //
             of_model, "/stages/norm -o norm.safetensors  # a stage's weights\n",                 //
             of_model, "/forward -d '{", partial, ",\"top\":5}'  # the likeliest next tokens\n",  //
             of_model, "/forward -d '{", partial, ",\"to\":", std::min(2, layers),
             ",\"rows\":\"last\"}'  # what enters block ", std::min(2, layers), "\n",            //
             at, "/v1/completions -d '{", prompt("Once upon a time"), ",\"max_tokens\":32}'\n",  //
             at, "/v1/completions -N -d '{", prompt("The king"), ",\"stream\":true}'\n",         //
             at, "/v1/sessions -d '{\"model\":\"", model.id(),
             "\",\"cut\":", std::max(0, layers - 2), "}'  # then POST its steps\n");
}

}  // namespace

Routes description_routes(Cloud& cloud) {
  Routes routes = serve::health_routes([&cloud] { return cloud.ready.load(); });
  routes.push_back({.method = "GET",
                    .path = "/",
                    .summary = "ten lines to try",
                    .answers = "text/plain; charset=utf-8",
                    .handler = [&cloud](const http::Request& request) {
                      return http::Response::text(200, curl_lines(request, *cloud.models[0]));
                    }});
  return routes;
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
