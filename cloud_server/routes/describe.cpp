// Describes the server in ten lines that can be pasted, and reports its health.
#include <algorithm>
#include <cstring>

#include "cloud_server/routes/routes.h"
#include "serve/compat/props.h"
#include "serve/observe.h"

namespace split::cloud {
namespace {

// Returns the client's name for us, if it is a single word for a shell.
std::string origin_of(const http::Request& request) {
  const std::string host(request.headers.get("Host").value_or(""));
  const bool plain = !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-._:[]", c) != nullptr;
  });
  return cat(request.secure ? "https://" : "http://", plain ? host : "127.0.0.1:8080");
}

// Returns ten lines that work when pasted, also for a model of one block or without a tokenizer.
std::string curl_lines(const http::Request& request, const ServedModel& model) {
  const std::string at = "curl " + origin_of(request), of_model = at + "/v1/models/" + model.id();
  const bool text = model.tokenizer() != nullptr;
  const auto prompt = [&](std::string_view words) {
    return text ? cat("\"prompt\":\"", words, "\"") : "\"prompt\":[0,1]";
  };
  const std::string partial = text ? "\"prompt\":\"Once upon\"" : "\"tokens\":[0,1]";
  const int layers = model.config().layers;
  const std::string first =
      cat(at, "/readyz\n",     //
          at, "/v1/models\n",  //
          of_model, "  # stages and their blobs\n", of_model, "/files/config.json\n");
  if (model.config().encodes()) {
    const std::string both = text ? "[\"Once upon\",\"The king\"]" : "[[0,1],[0,2]]";
    const bool ranks = model.config().ranks;
    const std::string asked = cat(ranks ? "/v1/rerank -d '{\"query\":\"Who?\",\"documents\":"
                                        : "/v1/embeddings -d '{\"input\":",
                                  both);
    const std::string texts = cat(text ? "\"prompt\":" : "\"tokens\":", both);
    return cat(first, of_model, "/stages/block.0 -o block.safetensors  # a stage's weights\n",
               of_model, "/forward -d '{", partial, ",\"to\":", std::min(1, layers),
               "}'  # what enters block ", std::min(1, layers), "\n", of_model, "/forward -d '{",
               texts, "}'  # the last states of two texts\n", of_model, "/forward -d '{", texts,
               ",\"to\":\"pool\"}'  # their ", ranks ? "scores" : "embeddings", "\n", at, asked,
               "}'\n", at, asked,
               ranks ? ",\"top_n\":1}'\n" : ",\"encoding_format\":\"base64\"}'\n");
  }
  return cat(first, of_model, "/stages/norm -o norm.safetensors  # a stage's weights\n",          //
             of_model, "/forward -d '{", partial, ",\"top\":5}'  # the likeliest next tokens\n",  //
             of_model, "/forward -d '{", partial, ",\"to\":", std::min(2, layers),
             ",\"rows\":\"last\"}'  # what enters block ", std::min(2, layers), "\n",            //
             at, "/v1/completions -d '{", prompt("Once upon a time"), ",\"max_tokens\":32}'\n",  //
             at, "/v1/completions -N -d '{", prompt("The king"), ",\"stream\":true}'\n",         //
             at, "/v1/sessions -d '{\"model\":\"", model.id(), "\",\"cut\":", default_cut(layers),
             "}'  # then POST its steps\n");
}

serve::Props props_of(ServedModel& model) {
  return {model.id(), model.config().context, serve::slots_of(model.batcher()),
          model.chat() != nullptr ? model.chat()->text() : ""};
}

}  // namespace

Routes description_routes(Cloud& cloud) {
  Routes routes = serve::health_routes([&cloud] {
    if (!cloud.ready) return serve::Health::kNotReady;
    return cloud.drains() ? serve::Health::kDraining : serve::Health::kReady;
  });
  routes.push_back(
      serve::props_route(cloud.version, [&cloud] { return props_of(cloud.find("")); }));
  routes.push_back({.method = "GET",
                    .path = "/",
                    .summary = "Returns ten curl lines to try on this server.",
                    .answers = "text/plain; charset=utf-8",
                    .handler = [&cloud](const http::Request& request) {
                      return http::Response::text(200, curl_lines(request, *cloud.models[0]));
                    }});
  return routes;
}

}  // namespace split::cloud
