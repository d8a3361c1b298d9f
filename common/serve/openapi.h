// GET /openapi.json: a server's requests and answers as an OpenAPI 3.0 document made from the
// routes themselves (http/route.h). Tests compare it with the server: required fields match, every
// field is read, every status is listed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace split::serve {

// Errors of any route: a malformed request, a missing key, a busy server.
inline constexpr int kAnyStatuses[] = {400, 401, 408, 413, 414, 415, 417,
                                       429, 431, 500, 501, 503, 505};

std::string openapi_json(std::string_view title, std::string_view version,
                         std::span<const http::Route> routes);

// Adds the routes and GET /openapi.json, which describes all, itself included. Call once.
// `refusals`: the guard's statuses on guarded routes, beside kAnyStatuses.
void add_routes(http::Router& router, std::string_view title, std::string_view version,
                std::vector<http::Route> routes, const std::vector<int>& refusals = {});

}  // namespace split::serve
