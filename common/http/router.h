// Answers requests: has the routes in their order, the guard, and the observers. Knows no socket:
// called by the server (server/server.h) for requests over a connection, and by a program that
// holds an edge as a library.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/head.h"
#include "http/route.h"

namespace split::http {

// Returns the client of this head, for Request::principal, or throws the HttpError to answer. Any
// thread, perhaps twice for a request: also before a large body is received.
using Guard = std::function<std::string(const Headers&)>;

// The outcome of a request.
struct Answered {
  const Route* matched = nullptr;  // null: no route matched
  std::string_view route;          // path of the route; empty: none matched
  int status = 0;
  uint64_t bytes_in = 0, bytes_out = 0;        // body; head and body
  std::chrono::steady_clock::duration took{};  // from the handler's start to the last byte sent
};
// Called after each answer, by the thread that ends it; must not throw or block. The request's body
// is gone.
using Observer = std::function<void(const Request&, const Answered&)>;

// Call the first three before any request. All others: any thread.
class Router {
 public:
  // Adds a route; the first that matches a path wins. GET also answers HEAD; OPTIONS and 405 are
  // answered without a route.
  void add(Route route);
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  void add_observer(Observer observer) { observers_.push_back(std::move(observer)); }

  std::span<const Route> routes() const { return routes_; }  // in their order
  // Returns the guard's refusal of a head, before its body has come.
  std::optional<HttpError> refusal(const RequestHead& head) const;
  // Calls the handler of this method at these segments, and sets the route in `answered`. `late`:
  // only open routes are still answered. Throws HttpError, with 404, 405 and 503, and what a
  // handler throws.
  Response answer(Request& request, const std::vector<std::string>& segments, bool late,
                  Answered& answered) const;
  // Returns an error in the shape of this path's errors; for an unknown path by its first segment.
  Response render(const HttpError& error, const std::vector<std::string>& segments,
                  std::string_view request_id) const;
  void tell(const Request& request, const Answered& answered) const;

 private:
  // Returns the route of `method` at this path, and what its braces took. Adds the other methods of
  // the path to `allowed`.
  const Route* find(const std::string& method, const std::vector<std::string>& segments,
                    std::vector<std::string>& params, std::string& allowed) const;

  Guard guard_;
  std::vector<Observer> observers_;
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;  // path of each route
};

}  // namespace split::http
