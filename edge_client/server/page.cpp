#include "edge_client/server/page.h"

#include <string_view>

#include "base/bytes.h"

namespace split::edge {
namespace {

using namespace std::string_view_literals;

struct File {
  std::string_view name, bytes;
};
constexpr File kFiles[] = {
#include "page_files.inc"
};

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  CHECK(name.ends_with(".svg"));
  return "image/svg+xml";
}

std::string path_of(const File& file) {
  return file.name == "index.html" ? "/" : cat("/", file.name);
}

Bytes bytes_of(const File& file) { return std::as_bytes(std::span(file.bytes)); }

http::Response answer(const File& file, const std::string& etag) {
  auto response =
      http::Response::bytes({bytes_of(file)}, nullptr, std::string(content_type(file.name)), etag);
  // Asked for again at each visit and answered by 304: another build's page shows at once.
  response.headers.set("Cache-Control", "no-cache");
  response.headers.set("Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                       "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'");
  response.headers.set("X-Content-Type-Options", "nosniff");
  response.headers.set("Referrer-Policy", "no-referrer");
  return response;
}

}  // namespace

std::vector<http::Route> page_routes() {
  std::vector<http::Route> routes;
  for (const File& file : kFiles) {
    const std::string etag = cat("\"", Sha256::hex_of(bytes_of(file)), "\"");
    routes.push_back(
        {.method = "GET",
         .path = path_of(file),
         .summary = "Returns a file of the page.",
         .answers = content_type(file.name),
         .statuses = {200, 206, 304, 416},
         .handler = [&file, etag](const http::Request&) { return answer(file, etag); }});
  }
  return routes;
}

}  // namespace split::edge
