#include "serve/page_files.h"

#include "base/bytes.h"
#include "base/log.h"

namespace split::serve {
namespace {

std::string_view content_type(std::string_view name) {
  for (const auto& [end, type] : {std::pair{".html", "text/html; charset=utf-8"},
                                  {".css", "text/css; charset=utf-8"},
                                  {".js", "text/javascript; charset=utf-8"},
                                  {".ts", "text/plain; charset=utf-8"},
                                  {".wasm", "application/wasm"},
                                  {".svg", "image/svg+xml"},
                                  {".json", "application/json"},
                                  {".def", "text/plain; charset=utf-8"},
                                  {".safetensors", "application/octet-stream"}}) {
    if (name.ends_with(end)) return type;
  }
  throw Error(ErrorKind::kInput, cat("[page] no type for ", name));
}

Bytes bytes_of(const PageFile& file) { return std::as_bytes(std::span(file.bytes)); }

http::Response answer(const PageFile& file, const std::string& etag, const PageRules& rules) {
  auto response =
      http::Response::bytes({bytes_of(file)}, nullptr, std::string(content_type(file.name)), etag);
  // Revalidated at each visit, with 304 for an answer: another build's page shows at once.
  response.headers.set("Cache-Control",
                       file.fixed ? "public, max-age=31536000, immutable" : "no-cache");
  response.headers.set("Content-Security-Policy",
                       cat("default-src 'none'; script-src 'self'", rules.scripts,
                           "; style-src 'self'; ", "img-src 'self'; connect-src 'self'",
                           rules.connections, "; ", rules.isolated ? "worker-src 'self'; " : "",
                           "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"));
  response.headers.set("X-Content-Type-Options", "nosniff");
  response.headers.set("Referrer-Policy", "no-referrer");
  if (file.zipped) response.headers.set("Content-Encoding", "gzip");
  if (rules.isolated) {
    response.headers.set("Cross-Origin-Opener-Policy", "same-origin");
    response.headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  }
  return response;
}

}  // namespace

std::vector<http::Route> page_routes(std::span<const PageFile> files, const PageRules& rules) {
  std::vector<http::Route> routes;
  for (const PageFile& file : files) {
    const std::string etag = cat("\"", Sha256::hex_of(bytes_of(file)), "\"");
    routes.push_back({.method = "GET",
                      .path = file.name == "index.html" ? rules.path : cat(rules.path, file.name),
                      .summary = "Returns a file of the page.",
                      .answers = content_type(file.name),
                      .statuses = {200, 206, 304, 416},
                      .access = rules.access,
                      .handler = [file, etag, rules](const http::Request&) {
                        return answer(file, etag, rules);
                      }});
  }
  return routes;
}

}  // namespace split::serve
