#include "edge_client/server/page.h"

#include "serve/page_files.h"

namespace split::edge {
namespace {

using namespace std::string_view_literals;

constexpr serve::PageFile kFiles[] = {
#include "page_files.inc"
};

}  // namespace

std::vector<http::Route> page_routes() { return serve::page_routes(kFiles, {}); }

}  // namespace split::edge
