// The edge's routes: OpenAI's, Ollama's and its own, for a router behind a socket or in the
// caller's process.
#pragma once

#include <vector>

#include "edge_client/server/placements.h"
#include "http/router.h"

namespace split::edge {

// Adds every route, with `more` among them, and observes requests. The placements outlive the
// router.
void add_routes(http::Router& router, Placements& placements, std::vector<http::Route> more = {});

}  // namespace split::edge
