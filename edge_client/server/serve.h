// edge_client --serve: the service behind its routes, from the first connection to the last answer.
#pragma once

#include "edge_client/server/service.h"
#include "http/server.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Adds every route. The service outlives the server.
void add_routes(http::Server& server, Service& service);

// Returns when it is interrupted and the answers in flight have ended. Throws Error(kInUse),
// and what Service::load() throws.
void serve_until_interrupted(const Options& options, const World& world, Interrupt& interrupt);

}  // namespace split::edge
