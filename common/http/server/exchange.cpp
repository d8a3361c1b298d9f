#include "http/server/exchange.h"

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

// Sends an answer while it is made, in chunks or, for HTTP/1.0, up to the connection's end.
class EventSink : public Sink {
 public:
  explicit EventSink(Connection& connection)
      : connection_(connection), answer_(*connection.answer) {}
  bool write(std::string_view bytes) override {
    if (bytes.empty()) return !answer_.failed;  // an empty chunk would end the body
    if (answer_.failed) return false;
    if (answer_.chunked) answer_.out.add(cat(in_hex(bytes.size()), "\r\n"));
    answer_.out.add(bytes);
    if (answer_.chunked) answer_.out.add("\r\n");
    send();
    return !answer_.failed;
  }
  bool full() const override { return answer_.out.unsent_text() >= kStreamBytes; }
  bool client_gone() override { return answer_.failed || is_gone(connection_); }
  void end() {
    if (answer_.chunked && !answer_.failed) answer_.out.add("0\r\n\r\n");
  }
  void send() {
    const Io io = answer_.out.send_some(connection_, kTurnBytes);
    answer_.failed = io == Io::kGone || (io == Io::kWait && answer_.out.is_stuck(connection_));
  }

 private:
  static std::string in_hex(size_t value) {
    char digits[16];
    return {digits, std::to_chars(digits, std::end(digits), value, 16).ptr};
  }

  Connection& connection_;
  Answer& answer_;
};

}  // namespace

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
                       "ETag, Retry-After, Server-Timing, Split-Have, Split-Schema-Loosened, "
                       "Split-Tools-Left-Out, X-Request-Id");
  if (request.method != "OPTIONS" || !request.headers.get("Access-Control-Request-Method")) return;
  response.headers.set("Access-Control-Allow-Methods",
                       std::string(response.headers.get("Allow").value_or("")));
  // Clients have headers of their own, such as OpenAI's X-Stainless-*; an allowed origin's page may
  // send any.
  std::string headers =
      "Accept, Authorization, Content-Type, If-None-Match, If-Range, Range, X-Request-Id";
  const auto wanted = request.headers.get("Access-Control-Request-Headers");
  if (wanted && is_printable(*wanted)) headers += cat(", ", *wanted);
  response.headers.set("Access-Control-Allow-Headers", std::move(headers));
  response.headers.set("Access-Control-Max-Age", "600");
  // A page from the internet requests this before it may reach an address like 127.0.0.1.
  if (request.headers.get("Access-Control-Request-Private-Network")) {
    response.headers.set("Access-Control-Allow-Private-Network", "true");
  }
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
    // The length of a 200 (RFC 9110, section 8.6).
    fields.add("Content-Length", std::to_string(size));
  } else if (part.status == 416) {
    fields.add("Content-Range", cat("bytes */", size));
    Response refusal =
        error_response({416, "range_not_satisfiable", cat("the body has ", size, " bytes")});
    response.body = std::move(refusal.body);
    response.content_type = std::move(refusal.content_type);
  }
  return part;
}

bool Exchange::is_for_loop(const RequestHead& head) const {
  return (head.method == "GET" || head.method == "HEAD") && head.content_length == 0 &&
         std::ranges::any_of(router_.routes(), [&](const Route& route) {
           return route.on_loop && route.method == "GET" && route.path == head.path;
         });
}

Trace Exchange::trace_of(const Headers& headers) const {
  const auto given = headers.get(kTraceHeader);
  const Trace trace = given ? Trace::within(*given) : Trace();
  return trace || !options_.begin_traces ? trace : Trace::begun();
}

void Exchange::begin(Connection& connection) const {
  RequestHead& head = connection.head;
  connection.answer =
      std::make_unique<Answer>(WritePace{options_.write_timeout, options_.min_write_rate});
  Answer& answer = *connection.answer;
  Request& request = answer.request;
  request.method = head.method;
  request.path = head.path;
  request.peer = client_address(connection.peer, head.headers, proxies_);
  request.secure = connection.tls != nullptr;
  request.id = request_id(head.headers);
  request.query_params = std::move(head.query);
  request.body = std::move(connection.body);
  request.memory = std::exchange(connection.memory, nullptr);
  if (!request.memory) request.memory = std::make_shared<MemoryShare>(options_.memory);
  request.client_gone = [&connection] { return is_gone(connection); };
  request.trace = trace_of(head.headers);
  const LogScope scope(request.id, request.trace.traceparent());
  answer.answered.bytes_in = request.body.size();

  Response response;
  Check checked = Check::kNone;
  try {
    checked = check(head.headers, cat(head.method, ' ', head.target), request.body);
    if (checked == Check::kDamaged) {
      throw HttpError(400, "damaged", "the request changed on its way here: send it again");
    }
    request.headers = std::move(head.headers);
    response = router_.answer(request, head.segments, connection.late, answer.answered);
    if (response.stream) request.memory->take(kStreamBytes);
  } catch (...) {  // the one place where a handler's exception becomes an answer
    response = router_.render(current_exception_as_error(), head.segments, request.id);
  }
  release_body(request.body);
  if (checked == Check::kFits && head.method != "HEAD" && !response.owner && !response.stream) {
    add_check(response.headers, cat(response.status), response.body);
  }
  add_cors(request, response);
  fill(answer, head, std::move(response));
  if (answer.stream) EventSink(connection).send();  // the head, before the first event is there
}

void Exchange::fill(Answer& answer, const RequestHead& head, Response response) const {
  const Request& request = answer.request;
  // A stream for HTTP/1.0 ends with the connection.
  answer.chunked = head.minor_version == 1;
  answer.keep = head.keep_alive && !stopping_ && (!response.stream || answer.chunked);

  Headers fields;
  if (!answer.keep) fields.add("Connection", "close");
  const Selection part = select(request, response, fields);
  answer.answered.status = part.status;
  fields.add("X-Request-Id", request.id);
  for (const auto& [name, value] : response.headers) {
    // A 416 has no requested body, and must not be cached for ever.
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
    } else if (answer.chunked) {
      fields.add("Transfer-Encoding", "chunked");
    }
  }
  answer.out.add(write_reply_head(part.status, fields));
  if (!has_body || head.method == "HEAD") return;
  if (response.stream) {
    answer.stream = std::move(response.stream);
  } else if (in_pieces) {
    answer.out.add_pieces(response.pieces, std::move(response.owner), part.first, part.length);
  } else {
    answer.out.add_body(std::move(response.body));
  }
}

void Exchange::produce(Connection& connection) const {
  Answer& answer = *connection.answer;
  if (!answer.stream) return;
  const LogScope scope(answer.request.id, answer.request.trace.traceparent());
  EventSink events(connection);
  try {
    // An unread stream only ends: here, as that may block.
    if (!answer.failed && answer.stream(events) == Streamed::kMore && !answer.failed) return;
    events.end();
  } catch (const std::exception& error) {  // the head is out: cutting the connection reports the
                                           // error
    answer.keep = false;
    log_error(cat("[http] a streamed answer failed: ", error.what()));
  }
  answer.stream = nullptr;
}

bool Exchange::end(Connection& connection) const {
  Answer& answer = *connection.answer;
  const LogScope scope(answer.request.id);
  answer.answered.bytes_out = answer.out.sent();
  answer.answered.took = Clock::now() - answer.start;
  router_.tell(answer.request, answer.answered);
  return answer.keep && !answer.failed && !stopping_;
}

}  // namespace split::http
