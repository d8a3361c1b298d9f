// One request: gets its answer from the router, and prepares its bytes. Between these steps the
// connection's sender owns the answer (server_loop.h).
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "http/network.h"
#include "http/range.h"
#include "http/server/connection.h"
#include "http/server/server.h"

namespace split::http {

// Bytes of a stream kept for the client; with so many, nothing more is made.
inline constexpr size_t kStreamBytes = 256 << 10;
// Bytes sent on one connection before the others' turn.
inline constexpr size_t kTurnBytes = 256 << 10;

class Exchange {
 public:
  Exchange(const Server::Options& options, std::span<const Network> proxies,
           const std::atomic<bool>& stopping)
      : options_(options), proxies_(proxies), stopping_(stopping) {}

  Router& router() { return router_; }
  void on_refused(RefusalObserver observer) { refusal_observer_ = std::move(observer); }
  void tell_refused(const Refused& refused) const {
    if (refusal_observer_) refusal_observer_(refused);
  }

  // Whether the loop's own thread answers this request.
  bool is_for_loop(const RequestHead& head) const;

  // All three: any thread, one per connection.
  // Calls the handler for the request in connection.head and connection.body, and makes
  // connection.answer of what it returns.
  void begin(Connection& connection) const;
  // Makes more of a stream, until it ends or the connection's buffer is full.
  void produce(Connection& connection) const;
  // Calls the observers. Returns true if the connection can take another request.
  bool end(Connection& connection) const;

 private:
  Trace trace_of(const Headers& headers) const;
  // Sets the answer's head and body, or head and stream.
  void fill(Answer& answer, const RequestHead& head, Response response) const;
  // Adds the headers that let other origins' pages read the answer.
  void add_cors(const Request& request, Response& response) const;
  // Selects the bytes of a body in pieces, and adds the fields for them. A 416 gets an error's
  // body.
  Selection select(const Request& request, Response& response, Headers& fields) const;

  const Server::Options& options_;
  const std::span<const Network> proxies_;
  const std::atomic<bool>& stopping_;
  Router router_;
  RefusalObserver refusal_observer_;
};

}  // namespace split::http
