// Whether the cloud is there and how long its stages take: asked at most once a second, whoever
// wants to know.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/cloud/remote.h"

namespace split::edge {

// Any thread.
class HealthCheck {
 public:
  struct Seen {
    bool reachable = false;
    std::vector<std::string> models;         // the last that it named
    std::optional<double> lost_s;            // since when it does not answer; none: it does
    std::map<std::string, double> stage_ms;  // on the cloud
  };
  explicit HealthCheck(std::unique_ptr<Remote> remote) : remote_(std::move(remote)) {}

  // At the server, or what the last look saw. `model`: whose stages; empty: none yet.
  Seen look(const std::string& model);
  // Somebody else asked it, and got an answer or none.
  void heard(bool answer);

 private:
  std::optional<double> lost_s();

  std::mutex mutex_;  // of:
  const std::unique_ptr<Remote> remote_;
  std::chrono::steady_clock::time_point looked_{};
  Seen seen_;
  std::mutex lost_mutex_;  // of:
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
};

}  // namespace split::edge
