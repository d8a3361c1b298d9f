// One request: asks the router for its answer and says what is to be sent. Between these steps
// the connection's answer lies with whoever sends it (server_loop.h).
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

// Bytes of a stream that are kept for the client; while there are so many, nothing more is made.
inline constexpr size_t kStreamBytes = 256 << 10;
// Bytes sent for one connection before it is another one's turn.
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
  // Lets a stream make more, until it ends or as much is kept as a connection may have.
  void produce(Connection& connection) const;
  // Tells the observers of the answer. True when the connection can take another request.
  bool end(Connection& connection) const;

 private:
  Trace trace_of(const Headers& headers) const;
  // The answer's head and body, or the head and the stream.
  void fill(Answer& answer, const RequestHead& head, Response response) const;
  // Adds the headers that let a page from elsewhere read the answer.
  void add_cors(const Request& request, Response& response) const;
  // Chooses the bytes that a request for a body in pieces gets and adds the fields that say so. An
  // answer of 416 gets the body of an error.
  Selection select(const Request& request, Response& response, Headers& fields) const;

  const Server::Options& options_;
  const std::span<const Network> proxies_;
  const std::atomic<bool>& stopping_;
  Router router_;
  RefusalObserver refusal_observer_;
};

}  // namespace split::http
