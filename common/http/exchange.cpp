#include "http/exchange.h"

#include <httplib.h>

#include <algorithm>

#include "base/log.h"
#include "http/body_checksum.h"
#include "http/range.h"

// Members that this file overrides and calls are not a public interface: another version needs
// another look.
static_assert(std::string_view(CPPHTTPLIB_VERSION) == "0.11.4");

#ifdef __SANITIZE_THREAD__
// The library is not built for it: what guards its static variables is not seen.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:libcpp-httplib\n";
}
#endif

namespace split::http {
namespace {

// What the library reads from and writes to. It reads one request line of ours and no headers, so
// that its own parsing of ranges (by std::regex), of escapes in values and of lengths has nothing
// to work on.
class LibraryStream : public httplib::Stream {
 public:
  LibraryStream(std::string request, std::function<bool(std::string_view)> out)
      : request_(std::move(request)), out_(std::move(out)) {}

  bool is_readable() const override { return at_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t n = std::min(size, request_.size() - at_);
    std::memcpy(to, request_.data() + at_, n);
    at_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    return out_({from, size}) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override {
    return 0;
  }  // only compared with FD_SETSIZE, which does not bind us

 private:
  std::string request_;
  size_t at_ = 0;
  std::function<bool(std::string_view)> out_;
};

// The request that this thread is answering, for the library's one callback.
using Respond = std::function<void(httplib::Response&)>;
thread_local const Respond* current_respond = nullptr;

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) >= 0x20 && c != 0x7f; });
}

uint64_t size_of(const std::vector<Bytes>& pieces) {
  uint64_t size = 0;
  for (const Bytes piece : pieces) size += piece.size();
  return size;
}

// What lies in one piece from `offset` of all on; nothing behind the end.
std::string_view piece_at(const std::vector<Bytes>& pieces, uint64_t offset) {
  for (const Bytes piece : pieces) {
    if (offset < piece.size()) return as_text(piece.subspan(offset));
    offset -= piece.size();
  }
  return {};
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

class EventSink : public Sink {
 public:
  EventSink(std::function<bool(std::string_view)> out, const Connection& connection)
      : out_(std::move(out)), connection_(connection) {}
  bool write(std::string_view bytes) override {
    if (bytes.empty()) return alive_;  // an empty chunk would end the body
    return alive_ = alive_ && out_(bytes);
  }
  bool client_gone() override { return !alive_ || is_gone(connection_); }

 private:
  std::function<bool(std::string_view)> out_;
  const Connection& connection_;
  bool alive_ = true;
};

}  // namespace

struct Exchange::Library : httplib::Server {
  Library() {
    svr_sock_ =
        0;  // the library stops writing a body when this is invalid; it listens on nothing here
    set_pre_routing_handler([](const httplib::Request&, httplib::Response& response) {
      (*current_respond)(response);
      return HandlerResponse::Handled;
    });
    // Never reached by design; without it the library would send the exception's text in a header.
    set_exception_handler([](const httplib::Request&, httplib::Response& response,
                             std::exception_ptr) { response.status = 500; });
    set_post_routing_handler([](const httplib::Request&, httplib::Response& response) {
      response.headers.erase("Keep-Alive");  // its numbers are not ours
      if (response.status == 204) response.headers.erase("Content-Length");
    });
  }

  // True when the whole answer was written.
  bool process(const std::string& method, const Respond& respond, bool close,
               std::function<bool(std::string_view)> out) {
    LibraryStream stream(method + " / HTTP/1.1\r\n\r\n", std::move(out));
    current_respond = &respond;
    const auto clear = [](httplib::Request& request) {
      request.ranges.clear();
      for (const char* name : {"REMOTE_ADDR", "REMOTE_PORT", "LOCAL_ADDR", "LOCAL_PORT"})
        request.headers.erase(name);
    };
    bool closed = false;
    return process_request(stream, close, closed, clear);
  }
};

Exchange::Exchange(const Server::Options& options, const std::atomic<bool>& stopping)
    : options_(options), stopping_(stopping), library_(std::make_unique<Library>()) {}

Exchange::~Exchange() = default;

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

bool Exchange::answer(Connection& connection) const {
  RequestHead& head = connection.head;
  Writer writer(connection, options_.write_timeout, options_.min_write_rate);
  const auto out = [&](std::string_view bytes) { return writer.write(bytes); };
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

  const Respond respond = [&](httplib::Response& to) {
    const uint64_t size = size_of(response.pieces);
    Selection part{response.status, 0, size};
    if (response.owner && response.status == 200) {
      part = select_bytes(request.method, request.headers, response.etag, size);
      to.set_header("Accept-Ranges", "bytes");
      if (!response.etag.empty()) to.set_header("ETag", response.etag);
      if (part.status == 206) {
        to.set_header("Content-Range",
                      cat("bytes ", part.first, '-', part.first + part.length - 1, '/', size));
      } else if (part.status == 416) {
        const Response refusal =
            renderer_({416, "range_not_satisfiable", cat("the body has ", size, " bytes")});
        to.set_header("Content-Range", cat("bytes */", size));
        to.set_content(refusal.body, refusal.content_type);
      }
    }
    to.status = answered.status = part.status;
    to.set_header("X-Request-Id", request.id);
    for (const auto& [name, value] : response.headers) {
      // A 416 describes no body that was asked for, so it is not to be kept for ever.
      if (part.status == 416 && same_name(name, "Cache-Control")) continue;
      if (printable(name) && printable(value)) to.set_header(name, value);
    }
    const std::string type =
        printable(response.content_type) ? response.content_type : "application/octet-stream";
    if (part.status == 416) return;
    if (part.status == 304 || part.status == 204) {
      // Of a 304 it is the length that a 200 would have (RFC 9110, section 8.6).
      if (part.status == 304) to.set_header("Content-Length", std::to_string(size));
    } else if (response.stream) {
      const auto provide = [&](size_t, httplib::DataSink& library_sink) {
        EventSink events(
            [&](std::string_view bytes) {
              return !writer.failed() && library_sink.write(bytes.data(), bytes.size()) &&
                     writer.flush();
            },
            connection);
        writer.flush();  // the head, before the first event is there
        response.stream(events);
        if (writer.failed()) return false;
        library_sink.done();
        return true;
      };
      if (chunked) {
        to.set_chunked_content_provider(type, provide);
      } else {
        to.set_content_provider(type, provide);
      }
    } else if (response.owner && part.length > 0) {
      // The library asks again until all is sent.
      to.set_content_provider(part.length, type,
                              [&pieces = response.pieces, first = part.first](
                                  size_t offset, size_t length, httplib::DataSink& to_sink) {
                                const std::string_view text =
                                    piece_at(pieces, first + offset).substr(0, length);
                                return !text.empty() && to_sink.write(text.data(), text.size());
                              });
    } else {
      to.body = std::move(response.body);
      if (!type.empty()) to.set_header("Content-Type", type);
    }
  };
  bool whole = false;
  try {
    whole = library_->process(head.method, respond, close, out) && writer.flush();
  } catch (const std::exception&
               error) {  // a stream that failed after its head: the cut connection says so
    log_error(cat("[http] a streamed answer failed: ", error.what()));
    writer.flush();
  }
  answered.bytes_out = writer.sent();
  answered.took = Clock::now() - start;
  for (const Observer& observer : observers_) observer(request, answered);
  return whole && !close && !stopping_;
}

void Exchange::self_test() {
  Library library;
  const auto run = [&](const std::string& method, const Respond& respond) {
    std::string text;
    library.process(method, respond, true, [&](std::string_view bytes) {
      text += bytes;
      return true;
    });
    return text;
  };
  const auto expect = [](const std::string& got, std::string_view wanted) {
    if (got != wanted) {
      throw Error(ErrorKind::kIo,
                  "[http] the installed libcpp-httplib does not behave as version 0.11.4 does");
    }
  };
  const Respond plain = [](httplib::Response& to) {
    to.status = 201;
    to.body = "body";
    to.set_header("Content-Type", "a/b");
  };
  constexpr std::string_view kPlain =
      "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 4\r\nContent-Type: a/b\r\n\r\n";
  expect(run("POST", plain), std::string(kPlain) + "body");
  const Respond view = [](httplib::Response& to) {
    to.status = 206;
    to.set_content_provider(4, "a/b", [](size_t offset, size_t length, httplib::DataSink& sink) {
      return sink.write(&"part"[offset], length);
    });
  };
  constexpr std::string_view kView =
      "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nContent-Length: 4\r\nContent-Type: "
      "a/b\r\n\r\n";
  expect(run("GET", view), std::string(kView) + "part");
  const Respond stream = [](httplib::Response& to) {
    to.status = 200;
    to.set_chunked_content_provider("a/b", [](size_t, httplib::DataSink& sink) {
      sink.write("one", 3);
      sink.done();
      return true;
    });
  };
  expect(run("GET", stream),
         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: a/b\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"
         "3\r\none\r\n0\r\n\r\n");
  expect(run("GET", [](httplib::Response&) { throw std::runtime_error("secret"); }),
         "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

}  // namespace split::http
