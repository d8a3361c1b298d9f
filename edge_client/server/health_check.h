// Whether the cloud is there and how long its stages take: asked at most once a second, for any
// number of callers.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread.
class HealthCheck {
 public:
  struct Seen {
    bool reachable = false;
    std::vector<std::string> models;         // the last list of them
    std::optional<double> lost_s;            // how long it has not answered; nullopt: it does
    std::map<std::string, double> stage_ms;  // the cloud's
  };
  explicit HealthCheck(std::unique_ptr<Remote> remote) : remote_(std::move(remote)) {}

  // Asks the server, or returns what the last look saw. `model`: whose stage times; empty: none
  // yet.
  Seen look(const std::string& model);
  // Notes another request, and whether it was answered.
  void heard(bool answer);

 private:
  std::optional<double> lost_s();

  Mutex mutex_{LockOrder::kLook};  // guards the members below
  const std::unique_ptr<Remote> remote_;
  std::chrono::steady_clock::time_point looked_{};
  Seen seen_;
  Mutex lost_mutex_{LockOrder::kLost};  // guards lost_since_
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
};

}  // namespace split::edge
