// Requests, responses and errors as a handler sees them: plain data. Knows no sockets; server.h and
// client.h move these over the wire.
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

// Header fields in their order; names are case-insensitive.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}

  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // Replaces every field of this name.
  void set(std::string_view name, std::string value);
  // Returns the first field of this name.
  std::optional<std::string_view> get(std::string_view name) const;
  size_t count(std::string_view name) const;
  size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

bool same_name(std::string_view a, std::string_view b);  // ASCII, case-insensitive

struct Request {
  std::string method;     // as sent; HEAD reaches the GET handler as "HEAD"
  std::string path;       // percent-decoded, at most 1 KiB
  std::string peer;       // the client's numeric address, perhaps from a trusted proxy
  std::string id;         // X-Request-Id: the client's if valid, else ours
  std::string principal;  // the client by the server's guard; empty: anybody
  bool secure = false;    // came over TLS
  Trace trace;            // the request's
  Headers headers;
  std::vector<std::pair<std::string, std::string>> query_params;  // decoded
  std::vector<std::string> path_params;  // what {..} matched, decoded, in order
  std::string body;
  // Pays for this request's body, scratch and answer from the server's memory budget. Handlers
  // charge it before they allocate what a client can make large.
  std::shared_ptr<MemoryShare> memory = std::make_shared<MemoryShare>();
  // Whether the client has closed; cheap enough to call between tokens.
  std::function<bool()> client_gone;

  std::optional<std::string> query(std::string_view name) const;
};

// An event of a stream: its JSON, and its name where the route's events have names. Of a stream of
// lines, the JSON alone.
struct Event {
  std::string json, name = {};
  bool line = false;
};
struct Events : std::vector<Event> {
  using vector::vector;
  Events& operator+=(Events more) {
    insert(end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
    return *this;
  }
  friend Events operator+(Events first, Events more) { return first += std::move(more); }
};

// The output of a streamed answer. One thread at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  // Sends events, perhaps behind a comment, and the end of OpenAI's streams. As text (sse.h), where
  // the client gets no values. Return as write() does.
  virtual bool tell(const Events& events, std::string_view comment = {});
  virtual bool done();
  // Sends what the client takes at once and keeps the rest; never blocks. Returns false from then
  // on once the client is gone or has taken nothing for long.
  virtual bool write(std::string_view bytes) = 0;
  // Whether enough is kept that its producer should return, with Streamed::kMore.
  virtual bool full() const = 0;
  // Whether the client has closed its end, also while nothing is written.
  virtual bool client_gone() = 0;
};

// Makes a part of a streamed answer, ideally until the sink is full. After kMore it is called
// again, by any thread, once the client has taken most of it. Destroyed by a thread that may block.
enum class Streamed : uint8_t { kMore, kDone };
using Producer = std::function<Streamed(Sink&)>;

// One of three bodies: `body`; or `pieces`, kept alive by `owner` and sent without a copy, with
// Range, If-Range and If-None-Match answered from `etag`; or `stream`, called on workers' threads
// after the head.
struct Response {
  int status = 200;
  std::string content_type;
  Headers headers;
  std::string body;
  std::vector<Bytes> pieces;
  std::shared_ptr<const void> owner;
  std::string etag;  // strong, quoted; used only for pieces
  Producer stream;

  static Response text(int status, std::string body);
  static Response json(int status, std::string body);
  static Response bytes(std::vector<Bytes> pieces, std::shared_ptr<const void> owner,
                        std::string content_type, std::string etag);
  // Makes a text/event-stream, not cached; see sse.h for the events.
  static Response events(Producer stream);
};

// An answer of status 400 or more, thrown by a handler.
struct HttpError : std::exception {
  int status;
  std::string code;  // machine-readable: "session_unknown"
  std::string message;
  std::string param;  // the field it is about, or empty
  Headers headers;    // for example Retry-After
  // Further members of the error object, for programs: {"have", 3}.
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

// {"error":{"message","type","param","code"}}, the shape of OpenAI's errors, followed by the
// error's numbers. A code cannot break out of it.
Response error_response(const HttpError& error);

// {"error":"one line"}, Ollama's shape.
Response plain_error_response(const HttpError& error);

// {"type":"error","error":{"type","message"},"request_id"}, Anthropic's shape.
Response typed_error_response(const HttpError& error, std::string_view request_id);

// Turns the exception in flight into a client's error: split::Error by kind, HttpError unchanged,
// anything else 500 with a fixed text. Logs failures on our side and never describes them to the
// client. Call inside a catch block.
HttpError current_exception_as_error();

}  // namespace split::http
