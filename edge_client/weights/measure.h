// Measures the network to a server, with a few small requests and at most 256 kB.
#pragma once

#include "edge_client/cloud/remote.h"
#include "edge_client/split/planner.h"
#include "edge_client/weights/blob_client.h"
#include "edge_client/weights/forecasts.h"

namespace split::edge {

// The shortest of five round trips on a connection that is kept open, and the rate of the largest
// blob's first bytes. Throws RemoteError.
Network measure_network(Remote& remote, const wire::ModelInfo& info);
// The round trips alone.
double measure_rtt(Remote& remote);
// Tells the forecasts of the round trip and of the cloud's own word. Throws RemoteError.
void measure_cloud(Remote& remote, const std::string& model, Forecasts& forecasts);

}  // namespace split::edge
