// Requests, responses and errors as a handler sees them: plain data.
// Nothing here knows sockets; server.h and client.h move these over the wire.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/resources/memory_budget.h"
#include "http/trace.h"

namespace split::http {

// Header fields in their order; names compare without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // Replaces every field of this name.
  void set(std::string_view name, std::string value);
  // The first field of this name.
  std::optional<std::string_view> get(std::string_view name) const;
  size_t count(std::string_view name) const;
  size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

bool same_name(std::string_view a, std::string_view b);  // ASCII, without case

struct Request {
  std::string method;     // as sent; HEAD reaches the GET handler as "HEAD"
  std::string path;       // percent-decoded, at most 1 KiB
  std::string peer;       // the client's numeric address, perhaps as a trusted proxy says
  std::string id;         // X-Request-Id, theirs when it is sane, else ours
  std::string principal;  // who asks, as the server's guard says; empty: anybody
  bool secure = false;    // came over TLS
  Trace trace;            // that it belongs to
  Headers headers;
  std::vector<std::pair<std::string, std::string>> query_params;  // decoded
  std::vector<std::string> path_params;  // what {..} matched, decoded, in order
  std::string body;
  // Pays for this request's body, scratch and answer from the server's memory budget. Handlers take
  // from it before they allocate what a client can make large.
  std::shared_ptr<MemoryShare> memory = std::make_shared<MemoryShare>();
  // True once the client has closed; cheap enough to ask between tokens.
  std::function<bool()> client_gone;

  std::optional<std::string> query(std::string_view name) const;
};

// Where a streamed answer goes. One thread at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  // Sends what the client takes at once and keeps the rest; never waits. False when the client is
  // gone or has taken nothing for long, and then ever after.
  virtual bool write(std::string_view bytes) = 0;
  // True while so much is kept that its maker should return, with Streamed::kMore.
  virtual bool full() const = 0;
  // True once the client has closed its end, also while nothing is written.
  virtual bool client_gone() = 0;
};

// Makes a part of a streamed answer, at best until the sink is full. After kMore it is called
// again, by any thread, once the client has taken most of it; it is destroyed by a thread that may
// wait.
enum class Streamed : uint8_t { kMore, kDone };
using Producer = std::function<Streamed(Sink&)>;

// One of three bodies: `body`; or `pieces`, kept alive by `owner` and sent one after the other
// without a copy, with Range, If-Range and If-None-Match answered from `etag`; or `stream`, called
// on workers' threads after the head.
struct Response {
  int status = 200;
  std::string content_type;
  Headers headers;
  std::string body;
  std::vector<Bytes> pieces;
  std::shared_ptr<const void> owner;
  std::string etag;  // strong, with its quotes; only looked at for pieces
  Producer stream;

  static Response text(int status, std::string body);
  static Response json(int status, std::string body);
  static Response bytes(std::vector<Bytes> pieces, std::shared_ptr<const void> owner,
                        std::string content_type, std::string etag);
  // text/event-stream, not cached; see sse.h for the events.
  static Response events(Producer stream);
};

// An answer of status 400 or more, thrown by a handler.
struct HttpError : std::exception {
  int status;
  std::string code;  // for programs: "session_unknown"
  std::string message;
  std::string param;  // the field it is about, or empty
  Headers headers;    // for example Retry-After
  // More members of the error object, for programs: {"have", 3}.
  std::vector<std::pair<std::string, int64_t>> numbers;

  HttpError(int status, std::string code, std::string message, std::string param = {},
            Headers headers = {}, std::vector<std::pair<std::string, int64_t>> numbers = {})
      : status(status),
        code(std::move(code)),
        message(std::move(message)),
        param(std::move(param)),
        headers(std::move(headers)),
        numbers(std::move(numbers)) {}
  const char* what() const noexcept override { return message.c_str(); }
};

// {"error":{"message","type","param","code"}}, the shape of OpenAI's errors, and the error's
// numbers behind these. A code cannot break out of it.
Response error_response(const HttpError& error);

// {"error":"one line"}, as Ollama's.
Response plain_error_response(const HttpError& error);

// {"type":"error","error":{"type","message"},"request_id"}, as Anthropic's.
Response typed_error_response(const HttpError& error, std::string_view request_id);

// Turns the exception in flight into a client's error: split::Error by kind, HttpError as it is,
// anything else 500 with a fixed text. Failures on our side are logged and never described to the
// client. Call inside a catch block.
HttpError current_exception_as_error();

}  // namespace split::http
