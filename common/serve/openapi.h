// GET /openapi.json: what a server's routes take and answer, as an OpenAPI 3.0 document made from
// one table. Tests hold the table against the server: the same routes, the same required fields,
// no status that it does not list.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace split::serve {

struct ApiField {
  std::string_view name;
  std::string_view type;  // of JSON schema; empty: several
  std::string_view about;
  bool required = false;
};

struct ApiRoute {
  std::string_view method, path, about;
  std::string_view answers = "application/json";  // type of a good answer; empty: no body
  std::vector<int> statuses{200};                 // beside those that any route may have
  std::vector<ApiField> query = {};
  std::vector<ApiField> body = {};                      // members of a JSON object or a form
  std::vector<std::string_view> one_of = {};            // members of which exactly one is required
  std::string_view body_type = "application/json";      // of `body`
  std::vector<std::string_view> other_body_types = {};  // files
};

// What any route may answer, with an error: of a request's form, of a missing key, of a server that
// is busy.
inline constexpr int kAnyStatuses[] = {400, 401, 408, 413, 414, 415, 417,
                                       429, 431, 500, 501, 503, 505};

// Of those that every server here has: /livez, /readyz, /metrics and /openapi.json.
std::vector<ApiRoute> service_api();

std::string openapi_json(std::string_view title, std::string_view version,
                         std::span<const ApiRoute> routes);

// GET /openapi.json.
void add_openapi_route(http::Server& server, std::string_view title, std::string_view version,
                       std::span<const ApiRoute> routes);

}  // namespace split::serve
