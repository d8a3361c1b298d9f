// GET /openapi.json: what a server's routes take and answer, as an OpenAPI 3.0 document made of the
// routes themselves (http/route.h). Tests hold it against the server: the same required
// fields, no field that is not read, no status that is not listed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace split::serve {

// Errors that any route may answer: a malformed request, a missing key, a server that
// is busy.
inline constexpr int kAnyStatuses[] = {400, 401, 408, 413, 414, 415, 417,
                                       429, 431, 500, 501, 503, 505};

std::string openapi_json(std::string_view title, std::string_view version,
                         std::span<const http::Route> routes);

// Adds the routes and GET /openapi.json, which says what they and itself are. Once. `refusals`: the
// statuses that its guard answers on any guarded route, beside kAnyStatuses.
void add_routes(http::Router& router, std::string_view title, std::string_view version,
                std::vector<http::Route> routes, const std::vector<int>& refusals = {});

}  // namespace split::serve
