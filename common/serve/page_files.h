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
  bool zipped = false;     // the bytes are gzip's
  bool fixed = false;      // its name identifies its bytes: cached for good
};

struct PageRules {
  std::string path = "/";            // the files' folder
  std::string scripts, connections;  // additions to the policy: "'wasm-unsafe-eval'", an origin
  bool isolated = false;             // from other origins' pages (COOP, COEP)
  http::Access access = http::Access::kGuarded;
};

// GET of each file. Each answer limits the browser to this origin and to what the rules allow.
std::vector<http::Route> page_routes(std::span<const PageFile> files, const PageRules& rules);

}  // namespace split::serve
