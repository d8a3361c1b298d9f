// Measures the line to a server, and how soon that answers, with a few small requests and at most
// 256 kB.
#pragma once

#include "edge_client/cloud/remote.h"
#include "edge_client/place/planner.h"
#include "edge_client/weights/blobs/blob_client.h"
#include "edge_client/weights/plan/forecasts.h"

namespace split::edge {

// The shortest of five round trips on a connection that is kept open, and the rate of the largest
// blob's first bytes. Throws RemoteError.
Network measure_network(Remote& remote, const wire::ModelInfo& info);
// The round trips alone.
double measure_rtt(Remote& remote);
// The cloud's own word, and what some small steps took beside the work that it names: on the way,
// which goes into `network`, and there, with what they waited for others. Throws RemoteError.
std::optional<CloudLoad> measure_steps(Remote& remote, const wire::ModelInfo& info,
                                       uint32_t channels, Network& network);
// Tells the forecasts of both, and of the round trip. Throws RemoteError.
void measure_cloud(Remote& remote, const wire::ModelInfo& info, uint32_t channels,
                   Forecasts& forecasts);

}  // namespace split::edge
