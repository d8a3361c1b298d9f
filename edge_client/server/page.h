// The edge's web page, as files built into the program: nothing is read from disk, and nothing on
// the page comes from elsewhere. Knows no model; the page uses the routes beside it.
#pragma once

#include <vector>

#include "http/route.h"

namespace split::edge {

// GET / and the page's files. Every answer restricts the browser to this origin.
std::vector<http::Route> page_routes();

}  // namespace split::edge
