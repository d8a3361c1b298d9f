#include "serve/models.h"

#include "base/error.h"
#include "base/json.h"

namespace split::serve {
namespace {

std::string entry(const std::string& id) {
  return cat("{\"id\":", json_quote(id),
             ",\"object\":\"model\",\"created\":0,\"owned_by\":\"splitcompute\"}");
}

}  // namespace

http::Response model_list(std::span<const std::string> ids) {
  std::string data;
  for (const std::string& id : ids) data += cat(data.empty() ? "" : ",", entry(id));
  return http::Response::json(200, cat("{\"object\":\"list\",\"data\":[", data, "]}\n"));
}

http::Response model_entry(const std::string& id) {
  return http::Response::json(200, entry(id) + "\n");
}

}  // namespace split::serve
