#include "http/router.h"

#include <algorithm>

namespace split::http {

void Router::add(Route route) {
  patterns_.push_back(split_pattern(route.path));
  routes_.push_back(std::move(route));
}

const Route* Router::find(const std::string& method, const std::vector<std::string>& segments,
                          std::vector<std::string>& params, std::string& allowed) const {
  const bool head = method == "HEAD";
  for (size_t i = 0; i < routes_.size(); ++i) {
    const Route& route = routes_[i];
    auto found = match_path(patterns_[i], segments);
    if (!found) continue;
    if (route.method == method || (head && route.method == "GET")) {
      params = std::move(*found);
      return &route;
    }
    if (allowed.find(route.method) == std::string::npos) {
      allowed += route.method == "GET" ? "GET, HEAD, " : route.method + ", ";
    }
  }
  return nullptr;
}

Response Router::render(const HttpError& error, const std::vector<std::string>& segments,
                        std::string_view request_id) const {
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (routes_[i].plain_errors && !segments.empty() && patterns_[i].front() == segments.front()) {
      return plain_error_response(error);
    }
    if (routes_[i].typed_errors && match_path(patterns_[i], segments)) {
      return typed_error_response(error, request_id);
    }
  }
  return error_response(error);
}

std::optional<HttpError> Router::refusal(const RequestHead& head) const {
  if (!guard_) return std::nullopt;
  std::vector<std::string> params;
  std::string allowed;
  const Route* const route = find(head.method, head.segments, params, allowed);
  if (route == nullptr || route->access == Access::kOpen) return std::nullopt;
  try {
    guard_(head.headers);
    return std::nullopt;
  } catch (...) {
    return current_exception_as_error();
  }
}

Response Router::answer(Request& request, const std::vector<std::string>& segments, bool late,
                        Answered& answered) const {
  std::string allowed;
  if (const Route* const route = find(request.method, segments, request.path_params, allowed)) {
    answered.matched = route;
    answered.route = route->path;
    if (late && route->access != Access::kOpen) {
      throw HttpError(503, "stopping", "this server is stopping", {}, {{"Retry-After", "1"}});
    }
    if (guard_ && route->access == Access::kGuarded) request.principal = guard_(request.headers);
    return route->handler(request);
  }
  if (request.method == "OPTIONS" && (request.path == "*" || !allowed.empty())) {
    Response response;
    response.status = 204;
    response.headers = {{"Allow", request.path == "*" ? "GET, HEAD, POST, PUT, DELETE, OPTIONS"
                                                      : allowed + "OPTIONS"}};
    return response;
  }
  if (allowed.empty()) throw HttpError(404, "not_found", "there is nothing at this path");
  throw HttpError(405, "method_not_allowed", cat("this path does not take ", request.method), {},
                  {{"Allow", allowed + "OPTIONS"}});
}

void Router::tell(const Request& request, const Answered& answered) const {
  for (const Observer& observer : observers_) observer(request, answered);
}

}  // namespace split::http
