// The edge for a browser's tab at /app/: the page of edge_client --serve over an edge of
// WebAssembly, both built into this program where scripts/build.sh web has made them.
#include <algorithm>
#include <array>

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

constexpr std::string_view kPlace = "<meta name=\"wasm\" content=\"";

// The page, which names the files of WebAssembly: both come from one build.
std::string page_over(std::span<const serve::PageFile> wasm) {
  const auto* const page =
      std::ranges::find(kFiles, std::string_view("index.html"), &serve::PageFile::name);
  std::string html(page->bytes), names;
  for (const serve::PageFile& file : wasm) names += cat(names.empty() ? "" : " ", file.name);
  const size_t at = html.find(kPlace);
  CHECK(at != html.npos);
  return html.insert(at + kPlace.size(), names);
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
  static const std::string page = page_over(wasm);
  std::vector<serve::PageFile> files(std::begin(kFiles), std::end(kFiles));
  for (serve::PageFile& file : files) {
    if (file.name == "index.html") file.bytes = page;
  }
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
