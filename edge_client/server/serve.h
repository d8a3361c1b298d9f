// edge_client --serve: the service with its routes, from the first connection to the last answer.
#pragma once

#include "edge_client/options/options.h"
#include "edge_client/server/placements.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Returns when it is interrupted and running answers have ended. Throws Error(kInUse), and what
// Placements::load() throws.
void serve_until_interrupted(const Options& options, const World& world, Interrupt& interrupt);

}  // namespace split::edge
