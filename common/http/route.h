// A route: what is asked at one path, what answers it, and what is said about both. One struct,
// which the server, GET /openapi.json (serve/openapi.h) and the metrics' labels read.
#pragma once

#include "http/message.h"

namespace split::http {

using Handler = std::function<Response(const Request&)>;

// Who may ask for a route: whom the guard lets in, or anybody.
enum class Access : uint8_t { kGuarded, kOpen };

// A field of a request's query or body. The texts are literals.
struct RequestField {
  std::string_view name;
  std::string_view type;  // of JSON schema; empty: several
  std::string_view about;
  bool required = false;
};

// The views are literals too.
struct Route {
  std::string method;
  std::string path;  // its segments are literal or "{name}"
  std::string_view summary = {};
  std::string_view answers = "application/json";  // type of a good answer; empty: no body
  std::vector<int> statuses = {200};              // beside those that any route may have
  std::vector<RequestField> query = {};
  std::vector<RequestField> body = {};                  // members of a JSON object or a form
  std::vector<std::string_view> one_of = {};            // members of which exactly one is required
  std::string_view body_type = "application/json";      // of `body`
  std::vector<std::string_view> other_body_types = {};  // files
  Access access = Access::kGuarded;
  // Its handler never waits: the server's loop calls it, also while every worker is busy. GET only,
  // and a path without braces.
  bool on_loop = false;
  // One of many like it, as the steps of a text are: no news by itself, unless it fails.
  bool frequent = false;
  // Its errors are {"error":"one line"}, and all at paths that begin with the same segment.
  bool plain_errors = false;
  // Its errors are {"type":"error","error":{"type","message"},"request_id"}.
  bool typed_errors = false;
  Handler handler = {};
};

}  // namespace split::http
