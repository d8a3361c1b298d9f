#include "cloud_server/state/cloud.h"

#include <algorithm>

#include "serve/models.h"
#include "wire/codes.h"

namespace split::cloud {

std::vector<std::string> Cloud::ids() const {
  std::vector<std::string> ids;
  for (const auto& model : models) ids.push_back(model->id());
  return ids;
}

void Cloud::renew_keys(const serve::ApiKeys& renewed) {
  keys.renew(renewed);
  if (!opened) return;
  for (const auto& model : models) {
    if (PrefixCache* const prefixes = model->batcher().prefixes()) {
      prefixes->keep_owners([&](const std::string& owner) { return keys.has(owner); });
    }
  }
}

void Cloud::expect_no_drain() const {
  if (!drains()) return;
  throw http::HttpError(503, wire::codes::kDraining,
                        "this server takes no new texts or sessions: it will end", {},
                        {{"Retry-After", "1"}});
}

bool Cloud::is_drained() const {
  return clock() - drains_since.load() > CutRequests::kIdle &&
         std::ranges::all_of(models,
                             [](const auto& model) { return model->cut_requests().rest(); });
}

ServedModel& Cloud::find(const std::string& id) {
  if (id.empty() && !models.empty()) return *models[0];
  for (const auto& model : models) {
    if (model->id() == id) return *model;
  }
  serve::refuse_model(ids());
}

}  // namespace split::cloud
