// Describes the server on GET /split/status.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "edge_client/engine/engine.h"
#include "edge_client/server/health_check.h"

namespace split::edge {

struct ServiceState : EngineState {
  bool stopping = false;
  HealthCheck::Seen cloud;
  std::string last_receipt;          // JSON; empty: none yet
  std::vector<std::string> devices;  // that can be asked for
  std::string personal;              // the model with a tail of one's own; empty: there is none
  int highest = 0;                   // cut of its texts
  bool stops_cloud = false;          // the page may
};

// {"model","cut","server","device","stages" ...}
std::string status_json(const ServiceState& now);

}  // namespace split::edge
