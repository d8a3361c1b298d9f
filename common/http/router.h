// A router answers requests: it has the routes in their order, the guard, and the observers. It
// knows no socket: the server (server/server.h) asks it for what came over a connection, and a
// program that holds an edge as a library for what it is asked in its own process.
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

// Says who sends this head, for Request::principal, or throws the HttpError that they get instead
// of an answer. Any thread, and perhaps twice for one request: before a large body is received,
// too.
using Guard = std::function<std::string(const Headers&)>;

// The outcome of a request.
struct Answered {
  const Route* matched = nullptr;  // none: nothing is there
  std::string_view route;          // its path; empty: none matched
  int status = 0;
  uint64_t bytes_in = 0, bytes_out = 0;        // of the body; of head and body
  std::chrono::steady_clock::duration took{};  // from the handler's start to the last byte sent
};
// Called after each answer, by whoever ends it; must not throw or wait. The request's body is gone.
using Observer = std::function<void(const Request&, const Answered&)>;

// The first three: before anything is asked. All others: any thread.
class Router {
 public:
  // The first route that matches a path wins. GET also answers HEAD; OPTIONS and 405 answer by
  // themselves.
  void add(Route route);
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  void add_observer(Observer observer) { observers_.push_back(std::move(observer)); }

  std::span<const Route> routes() const { return routes_; }  // in their order
  // The guard's refusal of a request by its head, before its body is there.
  std::optional<HttpError> refusal(const RequestHead& head) const;
  // Calls the handler of this method at these segments, and says in `answered` which route it is.
  // `late`: only open routes are still answered. Throws HttpError, 404, 405 and 503 too, and what a
  // handler throws.
  Response answer(Request& request, const std::vector<std::string>& segments, bool late,
                  Answered& answered) const;
  // An error's answer, as those at this path are; of one that is not known the first segment.
  Response render(const HttpError& error, const std::vector<std::string>& segments,
                  std::string_view request_id) const;
  void tell(const Request& request, const Answered& answered) const;

 private:
  // The route that answers `method` at this path and what its braces took. What others take there
  // is added to `allowed`.
  const Route* find(const std::string& method, const std::vector<std::string>& segments,
                    std::vector<std::string>& params, std::string& allowed) const;

  Guard guard_;
  std::vector<Observer> observers_;
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;  // of each route's path
};

}  // namespace split::http
