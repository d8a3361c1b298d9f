// One request on a worker's thread: finds its route, calls the handler and writes the answer.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "http/connection.h"
#include "http/range.h"
#include "http/server.h"

namespace split::http {

class Exchange {
 public:
  Exchange(const Server::Options& options, const std::atomic<bool>& stopping)
      : options_(options), stopping_(stopping) {}

  void add_route(Route route);
  void set_error_renderer(ErrorRenderer renderer) { renderer_ = std::move(renderer); }
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  void add_observer(Observer observer) { observers_.push_back(std::move(observer)); }
  std::span<const Route> routes() const { return routes_; }
  // The guard's refusal of a request by its head, before its body is there.
  std::optional<HttpError> refusal(const RequestHead& head) const;
  // An error's answer, by the renderer.
  Response render(const HttpError& error) const { return renderer_(error); }

  // Answers the request in connection.head and connection.body. True when the connection can take
  // another. Any thread, one per connection.
  bool answer(Connection& connection) const;

 private:
  // The route that answers `method` at this path and what its braces took. What others take there
  // is added to `allowed`.
  const Route* find_route(const std::string& method, const std::vector<std::string>& segments,
                          std::vector<std::string>& params, std::string& allowed) const;
  // `late`: only open routes are still answered. `name` becomes the route's.
  Response dispatch(Request& request, const std::vector<std::string>& segments, bool late,
                    std::string_view& name) const;

  // Adds the headers that let a page from elsewhere read the answer.
  void add_cors(const Request& request, Response& response) const;
  // Chooses the bytes that a request for a body in pieces gets and adds the fields that say so. An
  // answer of 416 gets the body of an error.
  Selection select(const Request& request, Response& response, Headers& fields) const;

  const Server::Options& options_;
  const std::atomic<bool>& stopping_;
  ErrorRenderer renderer_ = error_response;
  Guard guard_;
  std::vector<Observer> observers_;
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;  // of each route's path
};

}  // namespace split::http
