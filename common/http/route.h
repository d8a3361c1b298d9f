// A route: a path, its handler, and the description of both. One struct for the server, GET
// /openapi.json (serve/openapi.h) and the metrics' labels.
#pragma once

#include "http/message.h"

namespace split::http {

using Handler = std::function<Response(const Request&)>;

// Says who may use a route: clients that the guard lets in, or anybody.
enum class Access : uint8_t { kGuarded, kOpen };

// A field of a request's query or body. The texts are literals.
struct RequestField {
  std::string_view name;
  std::string_view type;  // JSON schema's; empty: several
  std::string_view about;
  bool required = false;
};

// The views are literals.
struct Route {
  std::string method;
  std::string path;  // its segments are literal or "{name}"
  std::string summary = {};
  std::string_view answers = "application/json";  // type of a good answer; empty: no body
  std::vector<int> statuses = {200};              // beside every route's own
  std::vector<RequestField> query = {};
  std::vector<RequestField> body = {};                  // members of a JSON object or a form
  std::vector<std::string_view> one_of = {};            // exactly one of these members is required
  std::string_view body_type = "application/json";      // type of `body`
  std::vector<std::string_view> other_body_types = {};  // files
  Access access = Access::kGuarded;
  // The handler never blocks: the server's loop calls it, even while every worker is busy. GET
  // only, and a path without braces.
  bool on_loop = false;
  // One of many requests, like the steps of a text: logged only if it fails.
  bool frequent = false;
  // Errors are {"error":"one line"}, at every path with the same first segment.
  bool plain_errors = false;
  // Errors are {"type":"error","error":{"type","message"},"request_id"}.
  bool typed_errors = false;
  Handler handler = {};
};

}  // namespace split::http
