// Measures the line to a server, and its response time, with a few small requests and at most 256
// kB.
#pragma once

#include "edge_client/cloud/remote.h"
#include "edge_client/measure/forecasts.h"
#include "edge_client/place/planner.h"
#include "edge_client/weights/blobs/blob_client.h"

namespace split::edge {

// Returns the shortest of five round trips on a kept-alive connection, and the rate of the largest
// blob's first bytes. Throws RemoteError.
Network measure_network(Remote& remote, const wire::ModelInfo& info);
// Measures the round trip alone.
double measure_rtt(Remote& remote);
// Returns the cloud's report, with the overhead of some small steps beside the work that it
// reports: on the line, which goes into `network`, and there, with their wait for others. Throws
// RemoteError.
std::optional<CloudLoad> measure_steps(Remote& remote, const wire::ModelInfo& info,
                                       const ModelConfig& config, Network& network);
// Measures both and the round trip for the forecasts. Throws RemoteError.
void measure_cloud(Remote& remote, const wire::ModelInfo& info, const ModelConfig& config,
                   Forecasts& forecasts);

}  // namespace split::edge
