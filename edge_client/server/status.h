// Describes the server for GET /split/status.
#pragma once

#include <string>

#include "edge_client/engine/engine.h"
#include "edge_client/server/health_check.h"

namespace split::edge {

struct ServiceState : EngineState {
  bool stopping = false;
  HealthCheck::Seen cloud;
  std::string last_receipt;          // JSON; empty: none yet
  std::vector<std::string> devices;  // allowed in requests
  std::string personal;              // id of the model with a fine-tuned tail; empty: no tail
  int highest = 0;                   // highest cut of its texts
  bool stops_cloud = false;          // the page may end the cloud
};

// {"model","cut","server","device","stages" ...}
std::string status_json(const ServiceState& now);

}  // namespace split::edge
