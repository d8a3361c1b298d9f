#include "run/text/stops.h"

#include <algorithm>

#include "base/json.h"

namespace split {
namespace {

constexpr int kMostDepth = 64;

void add_ids(const Json* value, std::vector<int>& ids) {
  if (value == nullptr) return;
  if (value->is_array()) {
    for (const Json& one : *value) add_ids(&one, ids);
  } else if (value->is_number_integer()) {
    const auto id = value->get<int64_t>();
    if (id >= 0 && id <= INT32_MAX) ids.push_back(static_cast<int>(id));
  }
}

}  // namespace

std::vector<int> stops_of_files(std::span<const std::string> names,
                                const std::function<std::string(const char*)>& file,
                                const Tokenizer* tokenizer) {
  const auto read = [&](const char* name) {
    const bool present = std::ranges::find(names, name) != names.end();
    return present ? parse_json(file(name), kMostDepth, name) : Json::object();
  };
  std::vector<int> ids;
  const Json generation = read("generation_config.json");
  if (generation.is_object()) add_ids(generation.find("eos_token_id"), ids);
  if (tokenizer == nullptr) return ids;
  const Json config = read("tokenizer_config.json");
  if (!config.is_object()) return ids;
  for (const char* key : {"eos_token", "eot_token", "eom_token"}) {
    const Json* token = config.find(key);
    if (token != nullptr && token->is_object()) token = token->find("content");
    if (token == nullptr || !token->is_string()) continue;
    if (const auto id = tokenizer->added_id(token->text())) ids.push_back(*id);
  }
  return ids;
}

}  // namespace split
