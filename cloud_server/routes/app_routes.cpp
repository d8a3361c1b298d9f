// The edge for a browser's tab at /app/: the page of edge_client --serve with an edge in
// WebAssembly, both built into this program if scripts/build.sh web has made them.
#include <algorithm>

#include "cloud_server/routes/routes.h"
#include "http/client.h"
#include "serve/page_files.h"

#include "app_wasm.inc"

namespace split::cloud {
namespace {

using namespace std::string_view_literals;

constexpr serve::PageFile kFiles[] = {
#include "app_files.inc"
};

// modules.js: the names of the WebAssembly files, and of all others.
std::string module_names(std::span<const serve::PageFile> wasm) {
  const auto list = [](const auto& files) {
    std::string names;
    for (const serve::PageFile& file : files) {
      names += cat(names.empty() ? "'" : ", '", file.name, "'");
    }
    return names;
  };
  return cat("export const modules = [", list(wasm), "];\nexport const files = [", list(kFiles),
             "];\n");
}

http::Response not_built() {
  http::Response response = http::Response::text(
      503,
      "This server was built without the edge for browsers. Where its source is:\n"
      "  scripts/setup.sh --web && scripts/build.sh web && scripts/build.sh\n");
  response.headers.set("Cache-Control", "no-store");
  return response;
}

http::Response redirect() {
  http::Response response;
  response.status = 308;
  response.headers.set("Location", "/app/");
  return response;
}

}  // namespace

Routes app_routes(Cloud& cloud) {
  if (!cloud.app) return {};
  Routes routes = {{.method = "GET",
                    .path = "/app",
                    .summary = "Leads to the edge for browsers, /app/.",
                    .answers = "",
                    .statuses = {308},
                    .access = http::Access::kOpen,
                    .handler = [](const http::Request&) { return redirect(); }}};
  const std::vector<serve::PageFile> wasm = wasm_files();
  if (wasm.empty()) {
    routes.push_back({.method = "GET",
                      .path = "/app/",
                      .summary = "Says how the edge for browsers is built, which is not here.",
                      .answers = "text/plain; charset=utf-8",
                      .statuses = {503},
                      .access = http::Access::kOpen,
                      .handler = [](const http::Request&) { return not_built(); }});
    return routes;
  }
  static const std::string names = module_names(wasm);
  std::vector<serve::PageFile> files(std::begin(kFiles), std::end(kFiles));
  files.push_back({.name = "modules.js", .bytes = names});
  files.insert(files.end(), wasm.begin(), wasm.end());
  const std::string blobs =
      cloud.blob_url.empty() ? "" : cat(" ", http::split_url(cloud.blob_url).origin);
  std::ranges::move(serve::page_routes(files, {.path = "/app/",
                                               .scripts = " 'wasm-unsafe-eval'",
                                               .connections = blobs,
                                               .isolated = true,
                                               .access = http::Access::kOpen}),
                    std::back_inserter(routes));
  return routes;
}

}  // namespace split::cloud
