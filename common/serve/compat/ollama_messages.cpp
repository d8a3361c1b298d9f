#include "serve/compat/ollama_messages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace split::serve {
namespace {

// Calls that wait for their results: names, and the ids made for them.
using Waiting = std::vector<std::pair<std::string, std::string>>;

Json calls_with_ids(Json calls, size_t& count, Waiting& waiting) {
  Json::Array list = calls.take_array();
  for (Json& one : list) {
    const Json* const function = one.find("function");
    const Json* const name = function == nullptr ? nullptr : function->find("name");
    if (name == nullptr || !name->is_string()) continue;
    const std::string number = cat(count++);
    constexpr size_t kDigits = 5;
    const std::string id =
        "call" + std::string(kDigits - std::min(kDigits, number.size()), '0') + number;
    waiting.emplace_back(name->text(), id);
    one["id"] = id;
    one["type"] = "function";
  }
  return Json(std::move(list));
}

std::string id_of_result(const Json* name, Waiting& waiting) {
  if (waiting.empty()) return "call00000";
  auto at = waiting.begin();
  if (name != nullptr && name->is_string()) {
    const auto found = std::ranges::find(waiting, name->text(), &Waiting::value_type::first);
    if (found != waiting.end()) at = found;
  }
  std::string id = at->second;
  waiting.erase(at);
  return id;
}

}  // namespace

Json ollama_messages(Json messages) {
  size_t count = 0;
  Waiting waiting;
  Json::Array given = messages.take_array();
  for (Json& message : given) {
    if (!message.is_object()) continue;
    Json plain = Json::object();
    const bool result = message.contains("role") && message["role"] == "tool";
    if (result) plain["tool_call_id"] = id_of_result(message.find("tool_name"), waiting);
    for (auto& [name, value] : message.take_object()) {
      const bool nothing = value.is_null() || ((name == "images" || name == "tool_calls") &&
                                               value.is_array() && value.empty());
      if (nothing || (result && (name == "tool_name" || name == "tool_call_id"))) continue;
      if (name == "tool_calls" && value.is_array()) {
        value = calls_with_ids(std::move(value), count, waiting);
      }
      plain.add(name == "thinking" ? "reasoning_content" : std::move(name), std::move(value));
    }
    message = std::move(plain);
  }
  return Json(std::move(given));
}

}  // namespace split::serve
