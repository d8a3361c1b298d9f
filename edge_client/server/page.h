// The edge's web page, as files built into the program: nothing is read from disk and nothing on
// the page comes from elsewhere. Knows no model; the page asks the routes beside it.
#pragma once

#include <vector>

#include "http/server.h"
#include "serve/openapi.h"

namespace split::edge {

// GET / and the page's files. Every answer forbids the browser anything but this origin.
void add_page(http::Server& server);
// What /openapi.json says of them.
std::vector<serve::ApiRoute> page_routes();

}  // namespace split::edge
