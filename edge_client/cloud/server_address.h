// The address of the options' server: makes connections to it, and knows whether it responds.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/engine_options.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread. The options outlive it.
class ServerAddress {
 public:
  ServerAddress(const EngineOptions& options, const http::Environment& environment)
      : options_(options), environment_(environment) {}

  // Throws Error(kInput) for a bad URL.
  std::unique_ptr<Remote> connect(std::chrono::milliseconds timeout) const;
  const EngineOptions& options() const { return options_; }
  const http::Environment& environment() const { return environment_; }
  // Whether the server responds within two seconds, or did a moment ago.
  bool responds() const;

 private:
  const EngineOptions& options_;
  const http::Environment environment_;
  mutable Mutex mutex_{LockOrder::kServer};  // guards the members below
  mutable std::optional<Clock::time_point> looked_;
  mutable bool responded_ = true;
};

}  // namespace split::edge
