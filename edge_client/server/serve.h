// edge_client --serve: the service behind its routes, from the first connection to the last answer.
#pragma once

#include "edge_client/server/placements.h"
#include "http/server/server.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Adds every route. The placements outlive the server.
void add_routes(http::Server& server, Placements& placements);

// Returns when it is interrupted and the answers in flight have ended. Throws Error(kInUse),
// and what Placements::load() throws.
void serve_until_interrupted(const Options& options, const World& world, Interrupt& interrupt);

}  // namespace split::edge
