#include "http/exchange.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "http/body_checksum.h"

namespace split::http {
namespace {

uint64_t size_of(const std::vector<Bytes>& pieces) {
  uint64_t size = 0;
  for (const Bytes piece : pieces) size += piece.size();
  return size;
}

// Sends this part of the pieces without copying it.
void write_pieces(Writer& writer, const std::vector<Bytes>& pieces, const Selection& part) {
  uint64_t skipped = part.first, left = part.length;
  for (Bytes piece : pieces) {
    const uint64_t skip = std::min<uint64_t>(skipped, piece.size());
    skipped -= skip;
    piece = piece.subspan(skip, std::min<uint64_t>(left, piece.size() - skip));
    left -= piece.size();
    if (!piece.empty() && !writer.write(as_text(piece))) return;
  }
}

// Whether the request brought a check value that fits. Throws HttpError when it does not.
bool is_checked(const RequestHead& head, std::string_view body) {
  const auto value = head.headers.get(kCheckHeader);
  if (!value) return false;
  const Check check = compare_check(*value, cat(head.method, ' ', head.target), body);
  if (check == Check::kDamaged) {
    throw HttpError(400, "damaged", "the request changed on its way here: send it again");
  }
  return check == Check::kFits;
}

// An answer that is written while it is made, in chunks or, for HTTP/1.0, up to the connection's
// end.
class EventSink : public Sink {
 public:
  EventSink(Writer& writer, const Connection& connection, bool chunked)
      : writer_(writer), connection_(connection), chunked_(chunked) {}
  bool write(std::string_view bytes) override {
    if (bytes.empty()) return !writer_.failed();  // an empty chunk would end the body
    if (chunked_) writer_.write(cat(in_hex(bytes.size()), "\r\n"));
    writer_.write(bytes);
    if (chunked_) writer_.write("\r\n");
    return writer_.flush();
  }
  bool client_gone() override { return writer_.failed() || is_gone(connection_); }
  void end() {
    if (chunked_) writer_.write("0\r\n\r\n");
  }

 private:
  static std::string in_hex(size_t value) {
    char digits[16];
    return {digits, std::to_chars(digits, std::end(digits), value, 16).ptr};
  }

  Writer& writer_;
  const Connection& connection_;
  const bool chunked_;
};

}  // namespace

void Exchange::add_route(Route route) {
  patterns_.push_back(split_pattern(route.path));
  routes_.push_back(std::move(route));
}

void Exchange::add_cors(const Request& request, Response& response) const {
  if (options_.cors_origins.empty()) return;
  response.headers.add("Vary", "Origin");
  const auto origin = request.headers.get("Origin");
  if (!origin) return;
  const bool allowed = std::ranges::any_of(
      options_.cors_origins, [&](const std::string& one) { return one == "*" || one == *origin; });
  if (!allowed) return;
  response.headers.set("Access-Control-Allow-Origin", std::string(*origin));
  response.headers.set("Access-Control-Expose-Headers",
                       "ETag, Retry-After, Server-Timing, Split-Have, X-Request-Id");
  if (request.method != "OPTIONS" || !request.headers.get("Access-Control-Request-Method")) return;
  response.headers.set("Access-Control-Allow-Methods",
                       std::string(response.headers.get("Allow").value_or("")));
  response.headers.set("Access-Control-Allow-Headers",
                       "Accept, Authorization, Content-Type, If-None-Match, If-Range, Range, "
                       "X-Request-Id");
  response.headers.set("Access-Control-Max-Age", "600");
  // A page from the internet asks this before it may reach an address like 127.0.0.1.
  if (request.headers.get("Access-Control-Request-Private-Network")) {
    response.headers.set("Access-Control-Allow-Private-Network", "true");
  }
}

const Route* Exchange::find_route(const std::string& method,
                                  const std::vector<std::string>& segments,
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

std::optional<HttpError> Exchange::refusal(const RequestHead& head) const {
  if (!guard_) return std::nullopt;
  std::vector<std::string> params;
  std::string allowed;
  const Route* const route = find_route(head.method, head.segments, params, allowed);
  if (route == nullptr || route->access == Access::kOpen) return std::nullopt;
  try {
    guard_(head.headers);
    return std::nullopt;
  } catch (...) {
    return current_exception_as_error();
  }
}

Response Exchange::dispatch(Request& request, const std::vector<std::string>& segments, bool late,
                            std::string_view& name) const {
  std::string allowed;
  if (const Route* const route =
          find_route(request.method, segments, request.path_params, allowed)) {
    name = route->path;
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

Selection Exchange::select(const Request& request, Response& response, Headers& fields) const {
  const uint64_t size = size_of(response.pieces);
  if (!response.owner || response.status != 200) return {response.status, 0, size};
  const Selection part = select_bytes(request.method, request.headers, response.etag, size);
  fields.add("Accept-Ranges", "bytes");
  if (!response.etag.empty()) fields.add("ETag", response.etag);
  if (part.status == 206) {
    fields.add("Content-Range",
               cat("bytes ", part.first, '-', part.first + part.length - 1, '/', size));
  } else if (part.status == 304) {
    // The length that a 200 would have (RFC 9110, section 8.6).
    fields.add("Content-Length", std::to_string(size));
  } else if (part.status == 416) {
    fields.add("Content-Range", cat("bytes */", size));
    Response refusal =
        renderer_({416, "range_not_satisfiable", cat("the body has ", size, " bytes")});
    response.body = std::move(refusal.body);
    response.content_type = std::move(refusal.content_type);
  }
  return part;
}

bool Exchange::answer(Connection& connection) const {
  RequestHead& head = connection.head;
  Writer writer(connection, options_.write_timeout, options_.min_write_rate);
  Request request;
  request.method = head.method;
  request.path = head.path;
  request.peer = connection.peer;
  request.secure = connection.tls != nullptr;
  request.id = request_id(head.headers);
  request.query_params = std::move(head.query);
  request.body = std::move(connection.body);
  request.client_gone = [&connection] { return is_gone(connection); };
  const LogScope scope(request.id);
  Answered answered;
  answered.bytes_in = request.body.size();
  const auto start = Clock::now();

  Response response;
  bool checked = false;
  try {
    checked = is_checked(head, request.body);
    request.headers = std::move(head.headers);
    response = dispatch(request, head.segments, connection.late, answered.route);
  } catch (...) {  // the one place where a handler's exception becomes an answer
    response = renderer_(current_exception_as_error());
  }
  if (checked && head.method != "HEAD" && !response.owner && !response.stream) {
    response.headers.set(kCheckHeader, check_of(cat(response.status), response.body));
  }
  add_cors(request, response);
  // A stream for HTTP/1.0 ends where the connection does.
  const bool chunked = head.minor_version == 1;
  const bool close = !head.keep_alive || stopping_ || (response.stream && !chunked);

  Headers fields;
  if (close) fields.add("Connection", "close");
  const Selection part = select(request, response, fields);
  answered.status = part.status;
  fields.add("X-Request-Id", request.id);
  for (const auto& [name, value] : response.headers) {
    // A 416 describes no body that was asked for, so it is not to be kept for ever.
    if (part.status == 416 && same_name(name, "Cache-Control")) continue;
    fields.add(name, value);
  }
  const bool has_body = part.status != 204 && part.status != 304;
  const bool in_pieces = response.owner && part.length > 0;
  if (has_body) {
    if (!response.content_type.empty()) {
      fields.add("Content-Type", is_printable(response.content_type) ? response.content_type
                                                                     : "application/octet-stream");
    }
    if (!response.stream) {
      fields.add("Content-Length", std::to_string(in_pieces ? part.length : response.body.size()));
    } else if (chunked) {
      fields.add("Transfer-Encoding", "chunked");
    }
  }
  writer.write(write_reply_head(part.status, fields));
  bool whole = true;
  if (!has_body || head.method == "HEAD") {
    // The head is all.
  } else if (response.stream) {
    writer.flush();  // the head, before the first event is there
    EventSink events(writer, connection, chunked);
    try {
      response.stream(events);
      events.end();
    } catch (const std::exception& error) {  // behind its head: the cut connection says so
      log_error(cat("[http] a streamed answer failed: ", error.what()));
      whole = false;
    }
  } else if (in_pieces) {
    write_pieces(writer, response.pieces, part);
  } else {
    writer.write(response.body);
  }
  whole = writer.flush() && whole;
  answered.bytes_out = writer.sent();
  answered.took = Clock::now() - start;
  for (const Observer& observer : observers_) observer(request, answered);
  return whole && !close && !stopping_;
}

}  // namespace split::http
