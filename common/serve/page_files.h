// The files of a web page as routes: built into a program, so that nothing is read from disk and
// nothing on the page comes from elsewhere. Knows no page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/route.h"

namespace split::serve {

struct PageFile {
  std::string_view name;   // index.html is the page itself
  std::string_view bytes;  // outlive the routes, as the name does
  bool zipped = false;     // these bytes are gzip's
  bool fixed = false;      // its name says its bytes: it is kept for good
};

struct PageRules {
  std::string path = "/";            // that the files are below
  std::string scripts, connections;  // what more the policy allows: "'wasm-unsafe-eval'", an origin
  bool isolated = false;             // from other origins' pages (COOP, COEP)
  http::Access access = http::Access::kGuarded;
};

// GET of each file. Every answer forbids the browser anything but this origin and what the rules
// allow.
std::vector<http::Route> page_routes(std::span<const PageFile> files, const PageRules& rules);

}  // namespace split::serve
