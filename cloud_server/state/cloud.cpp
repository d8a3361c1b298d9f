#include "cloud_server/state/cloud.h"

#include "serve/models.h"

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

ServedModel& Cloud::find(const std::string& id) {
  if (id.empty() && !models.empty()) return *models[0];
  for (const auto& model : models) {
    if (model->id() == id) return *model;
  }
  serve::refuse_model(ids());
}

}  // namespace split::cloud
