// An edge in its caller's process: the routes of edge_client --serve without a socket. The
// functions of splitcompute.h are these two classes.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/resources/clock.h"
#include "edge_client/server/placements.h"
#include "edge_client/split/lock_order.h"
#include "http/router.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

class ApiAnswer;

// Sends the server's log lines to `line`; without it they are dropped. Call before the first edge.
void hear_log(void (*line)(std::string_view));

// Any thread.
class Edge {
 public:
  // Loads its model on a thread of its own. Throws Error(kInput) for a bad URL.
  explicit Edge(Options options);
  ~Edge();
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;

  std::shared_ptr<ApiAnswer> ask(std::string method, std::string path, std::string body);
  // Ends running answers and waits for them. The last call, once.
  void close();

 private:
  friend class ApiAnswer;

  // Returns a handler's answer; waits for the model if its route needs it.
  http::Response answer(http::Request& request, const std::vector<std::string>& segments,
                        Waiter& waiter, http::Answered& answered);
  void load();

  const Options options_;
  const World world_;
  Interrupt interrupt_;
  MemoryBudget memory_;
  Placements placements_;
  http::Router router_;
  Mutex mutex_{LockOrder::kAnswers};  // guards asked_
  std::vector<std::weak_ptr<ApiAnswer>> asked_;
  std::thread loading_;  // destroyed first
};

// One answer. The thread that asks for its status or next event does its work; a stream has a
// thread of its own. Any thread.
class ApiAnswer {
 public:
  ApiAnswer(Edge& edge, std::string method, std::string path, std::string body);
  ~ApiAnswer();
  ApiAnswer(const ApiAnswer&) = delete;
  ApiAnswer& operator=(const ApiAnswer&) = delete;

  int status();
  // Returns the next event, valid until the next call; null at the end.
  const std::string* next();
  void cancel() { cancelled_ = true; }
  // Drops the answer. Call before its last reference goes, unless its edge was closed.
  void drop();

 private:
  friend class Edge;
  class Waits;
  class Events;

  void begin();
  http::HttpError error_now() const;  // call in a catch block
  void end();
  void edge_closes();

  std::atomic<bool> cancelled_{false};
  Mutex working_{LockOrder::kAnswer};  // guards the members below
  Edge* edge_;                         // null after the end
  std::string method_, path_, text_;
  std::vector<std::string> segments_;  // segments of path_
  http::Request request_;
  http::Response response_;
  http::Answered answered_;
  Clock::time_point start_;
  std::unique_ptr<Events> events_;  // set for a stream
  std::deque<std::string> left_;    // rest of an ended answer: the one body, or events
  bool begun_ = false;
};

}  // namespace split::edge
