// The edge for a browser's tab at /app/: the page of edge_client --serve with an edge in
// WebAssembly; and the tensor library's own page at /app/ops/. Both are built into this program if
// scripts/build.sh web has made them.
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

// Leads from `path` to what is below it, or says there how that is built.
void add_folder(Routes& routes, const std::string& path, const std::string& what, bool is_built) {
  routes.push_back({.method = "GET",
                    .path = path,
                    .summary = cat("Leads to ", what, ", ", path, "/."),
                    .answers = "",
                    .statuses = {308},
                    .access = http::Access::kOpen,
                    .handler = [path](const http::Request&) {
                      http::Response response;
                      response.status = 308;
                      response.headers.set("Location", path + "/");
                      return response;
                    }});
  if (is_built) return;
  routes.push_back({.method = "GET",
                    .path = path + "/",
                    .summary = cat("Says how ", what, " is built, which is not here."),
                    .answers = "text/plain; charset=utf-8",
                    .statuses = {503},
                    .access = http::Access::kOpen,
                    .handler = [](const http::Request&) { return not_built(); }});
}

}  // namespace

Routes app_routes(Cloud& cloud) {
  if (!cloud.app) return {};
  const std::vector<serve::PageFile> wasm = wasm_files(), ops = ops_files();
  Routes routes;
  add_folder(routes, "/app", "the edge for browsers", !wasm.empty());
  add_folder(routes, "/app/ops", "the tensor library's page", !ops.empty());
  serve::PageRules rules{.path = "/app/ops/",
                         .scripts = " 'wasm-unsafe-eval'",
                         .connections = {},
                         .isolated = true,
                         .access = http::Access::kOpen};
  std::ranges::move(serve::page_routes(ops, rules), std::back_inserter(routes));
  if (wasm.empty()) return routes;
  static const std::string names = module_names(wasm);
  std::vector<serve::PageFile> files(std::begin(kFiles), std::end(kFiles));
  files.push_back({.name = "modules.js", .bytes = names});
  files.insert(files.end(), wasm.begin(), wasm.end());
  rules.path = "/app/";
  rules.connections =
      cloud.blob_url.empty() ? "" : cat(" ", http::split_url(cloud.blob_url).origin);
  std::ranges::move(serve::page_routes(files, rules), std::back_inserter(routes));
  return routes;
}

}  // namespace split::cloud
