#include "serve/compat/messages_input.h"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "serve/compat/response_adapter.h"
#include "text/json/in_order.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMostMessages = 1024, kMostBlocks = 4096;
constexpr int64_t kMostTokens = 1 << 24;

// Whether it is a header that changes with each request, and means nothing to a model.
bool is_billing(std::string_view text) {
  if (!text.starts_with("x-anthropic-billing-header")) return false;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) log_info("left out: a billing header in a prompt; said once");
  return true;
}

void add_line(std::string& all, std::string_view text) {
  if (!all.empty() && !text.empty()) all += '\n';
  all += text;
}

// A text, or blocks of text, joined by line breaks.
std::string words_of(const Json& value, const char* field, bool system = false) {
  if (value.is_string()) return value.text();
  if (!value.is_array()) Fields::refuse(field, "expected text or blocks");
  std::string all;
  for (const Json& one : value) {
    if (!one.is_object()) Fields::refuse(field, "expected blocks as objects");
    Fields block(&one);
    const std::string type = block.text("type");
    if (type != "text")
      Fields::refuse(field, cat("blocks of type ", shown(type), " are not supported"));
    const std::string text = block.text("text");
    if (!system || !is_billing(text)) add_line(all, text);
  }
  return all;
}

// Converts one message's blocks to messages of a chat: results stand before the words.
class Turn {
 public:
  Turn(std::string role, size_t& blocks) : role_(std::move(role)), blocks_(blocks) {}

  void add(const Json& content) {
    if (content.is_string()) return add_line(words_, content.text());
    if (!content.is_array()) Fields::refuse("messages", "expected content as text or blocks");
    for (const Json& one : content) add_block(one);
  }
  const std::string& role() const { return role_; }

  void put(Json::Array& messages) {
    for (Json& one : results_) messages.push_back(std::move(one));
    const bool nothing = words_.empty() && thought_.empty() && calls_.empty();
    if (nothing && !results_.empty()) return;
    Json message = message_of(role_, std::move(words_));
    if (!thought_.empty()) message["reasoning_content"] = std::move(thought_);
    if (!calls_.empty()) message["tool_calls"] = Json(std::move(calls_));
    messages.push_back(std::move(message));
  }

 private:
  void add_block(const Json& one) {
    if (++blocks_ > kMostBlocks) {
      Fields::refuse("messages", cat("expected at most ", kMostBlocks, " blocks"));
    }
    if (!one.is_object()) Fields::refuse("messages", "expected blocks as objects");
    Fields block(&one);
    const std::string type = block.text("type");
    const bool user = role_ == "user";
    if (type == "text") {
      const std::string text = block.text("text");
      add_line(words_, text);
    } else if (type == "tool_result" && user) {
      if (!block.has("tool_use_id"))
        Fields::refuse("messages", "a tool_result: 'tool_use_id' is missing");
      Json result = message_of(
          "tool", block.has("content") ? words_of(block.raw("content"), "messages") : "");
      result["tool_call_id"] = block.text("tool_use_id");
      results_.push_back(std::move(result));
    } else if (type == "tool_use" && !user) {
      const Json input = block.has("input") ? block.raw("input") : Json::object();
      if (!input.is_object()) Fields::refuse("messages", "a tool_use: expected an object as input");
      calls_.push_back(
          {{"id", block.text("id")},
           {"type", "function"},
           {"function", {{"name", block.text("name")}, {"arguments", json_in_order(input)}}}});
    } else if (type == "thinking" && !user) {
      add_line(thought_, block.text("thinking"));
    } else if (type != "redacted_thinking" || user) {
      Fields::refuse("messages", cat("blocks of type ", shown(type),
                                     " are not supported in messages of the ", role_));
    }
  }

  std::string role_;
  size_t& blocks_;
  std::string words_, thought_;
  Json::Array results_, calls_;
};

// Joins consecutive messages of a role: many templates want roles to take turns.
Json messages_of_turns(Fields& fields, bool& goes_on) {
  const Json given = fields.take("messages");
  if (!given.is_array() || given.empty() || given.size() > kMostMessages) {
    Fields::refuse("messages", cat("expected a list of 1..", kMostMessages, " messages"));
  }
  size_t blocks = 0;
  std::vector<Turn> turns;
  for (const Json& one : given) {
    if (!one.is_object()) Fields::refuse("messages", "expected objects");
    Fields message(&one);
    const std::string role = message.text("role");
    if (role != "user" && role != "assistant") {
      Fields::refuse("messages", "expected roles user and assistant");
    }
    if (turns.empty() || turns.back().role() != role) turns.emplace_back(role, blocks);
    turns.back().add(message.raw("content"));
    message.finish();
  }
  goes_on = turns.back().role() == "assistant";
  Json::Array messages;
  if (fields.has("system")) {
    std::string system = words_of(fields.raw("system"), "system", true);
    if (!system.empty()) messages.push_back(message_of("system", std::move(system)));
  }
  for (Turn& one : turns) one.put(messages);
  return Json(std::move(messages));
}

Json tools_of(const Json& tools) {
  if (!tools.is_array()) Fields::refuse("tools", "expected a list");
  Json list = Json::array();
  for (const Json& one : tools) {
    if (!one.is_object()) Fields::refuse("tools", "expected objects");
    Fields tool(&one);
    const std::string type = tool.text_or("type", "custom");
    if (type != "custom")
      Fields::refuse("tools", cat("tools of type ", shown(type), " are not supported"));
    Json function = {{"name", tool.text("name")}};
    if (tool.has("description")) function["description"] = tool.text("description");
    if (tool.has("input_schema")) function["parameters"] = tool.raw("input_schema");
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

void read_tool_choice(Fields& fields, Json& to) {
  if (!fields.has("tool_choice")) return;
  if (!fields.raw("tool_choice").is_object()) Fields::refuse("tool_choice", "expected an object");
  Fields choice(&fields.raw("tool_choice"));
  const std::string type = choice.text("type");
  if (choice.boolean_or("disable_parallel_tool_use", false)) to["parallel_tool_calls"] = false;
  if (type == "tool") {
    to["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice.text("name")}}}};
  } else if (type == "any" || type == "auto" || type == "none") {
    to["tool_choice"] = type == "any" ? "required" : type;
  } else {
    Fields::refuse("tool_choice", "expected auto, any, tool or none");
  }
}

}  // namespace

Json chat_of_messages(Fields& fields, bool counts) {
  Json to = Json::object();
  bool goes_on = false;
  to["messages"] = messages_of_turns(fields, goes_on);
  if (goes_on) to["continue_final_message"] = true;
  if (fields.has("model")) to["model"] = fields.text("model");
  if (fields.has("tools")) to["tools"] = tools_of(fields.raw("tools"));
  read_tool_choice(fields, to);
  if (fields.has("thinking")) {
    if (!fields.raw("thinking").is_object()) Fields::refuse("thinking", "expected an object");
    const Json* const type = fields.raw("thinking").find("type");
    if (type != nullptr && *type == "disabled") to["reasoning_effort"] = "none";
  }
  for (const char* key : {"mcp_servers", "container"}) {
    const bool none = !fields.has(key) || (fields.raw(key).is_array() && fields.raw(key).empty());
    if (!none) Fields::refuse(key, "is not supported");
  }
  for (const char* key : {"cache_control", "metadata", "service_tier", "context_management"})
    fields.ignore(key);
  if (counts) {
    for (const char* key :
         {"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences"})
      fields.ignore(key);
    fields.finish();
    return to;
  }
  to["max_tokens"] = fields.integer("max_tokens", 1, kMostTokens);
  for (const char* key : {"temperature", "top_p", "top_k"}) {
    if (fields.has(key)) to[key] = fields.raw(key);
  }
  if (fields.has("stop_sequences")) to["stop"] = fields.raw("stop_sequences");
  if (fields.boolean_or("stream", false)) {
    to["stream"] = true;
    to["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  }
  fields.finish();
  return to;
}

}  // namespace split::serve
