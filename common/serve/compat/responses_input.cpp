#include "serve/compat/responses_input.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "serve/compat/response_adapter.h"
#include "text/json/in_order.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxItems = 1024;

// Returns a text, or a list of parts that are texts, in a chat's form.
Json content_of(const Json& content) {
  if (content.is_string()) return content;
  if (!content.is_array()) Fields::refuse("input", "expected content as text");
  std::string text;
  for (const Json& part : content) {
    const Json* const type = part.find("type");
    const Json* const words = part.find("text");
    const bool is_text = type != nullptr && type->is_string() && words != nullptr &&
                         words->is_string() &&
                         (*type == "input_text" || *type == "output_text" || *type == "text" ||
                          *type == "reasoning_text");
    if (!is_text) {
      Fields::refuse("input", "expected content of type \"input_text\" or \"output_text\" alone");
    }
    text += words->text();
  }
  return text;
}

}  // namespace

Json response_messages(Json input, const Json& instructions) {
  Json messages = Json::array();
  if (!instructions.is_null()) messages.push_back(message_of("system", instructions));
  if (input.is_string()) {
    messages.push_back(message_of("user", std::move(input)));
    return messages;
  }
  if (!input.is_array() || input.empty() || input.size() > kMaxItems) {
    Fields::refuse("input", cat("expected a text or a list of 1..", kMaxItems, " messages"));
  }
  Json::Array made = messages.take_array();
  Json said;  // the assistant's message, with thoughts and calls
  const auto put = [&] {
    if (!said.is_null()) made.push_back(std::exchange(said, {}));
  };
  for (const Json& one : input) {
    if (!one.is_object()) Fields::refuse("input", "expected messages as objects");
    Fields item(&one);
    const std::string type = item.text_or("type", "message");
    for (const char* key : {"id", "status", "phase", "parsed_arguments"}) item.ignore(key);
    if (type == "function_call") {
      if (said.is_null()) said = message_of("assistant", "");
      said["tool_calls"].push_back(
          {{"id", item.text("call_id")},
           {"type", "function"},
           {"function",
            {{"name", item.text("name")}, {"arguments", item.text_or("arguments", "")}}}});
    } else if (type == "reasoning") {
      put();
      said = message_of("assistant", "");
      for (const char* key : {"summary", "encrypted_content"}) item.ignore(key);
      if (item.has("content")) said["reasoning_content"] = content_of(item.raw("content"));
    } else if (type == "function_call_output") {
      put();
      Json result = message_of("tool", content_of(item.raw("output")));
      result["tool_call_id"] = item.text("call_id");
      made.push_back(std::move(result));
    } else if (type == "message") {
      if (!item.has("content")) Fields::refuse("input", "expected messages with content");
      Json message = message_of(item.text("role"), content_of(item.raw("content")));
      const bool goes_on =
          message["role"] == "assistant" && !said.is_null() && !said.contains("tool_calls");
      if (goes_on) said["content"] = message["content"];
      if (!goes_on) put();
      if (!goes_on && message["role"] == "assistant")
        said = std::move(message);
      else if (!goes_on)
        made.push_back(std::move(message));
    } else {
      Fields::refuse("input", cat("expected items of type \"message\", \"reasoning\", "
                                  "\"function_call\" or \"function_call_output\", got ",
                                  shown(type)));
    }
    item.finish();
  }
  put();
  return Json(std::move(made));
}

namespace {

// Converts {"type":"function","name",...} to a chat's form; a chat refuses others.
Json nested(const Json& flat) {
  const Json* const type = flat.find("type");
  if (type == nullptr || *type != "function") return flat;
  Json function = Json::object();
  for (const auto& [name, value] : flat.members()) {
    if (name != "type") function.add(name, value);
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

// Tools of OpenAI without a schema: its server runs them, or explains to the model how a client
// wants them called.
constexpr std::string_view kOfServers[] = {
    "apply_patch", "code_interpreter", "computer_use_preview",
    "file_search", "image_generation", "local_shell",
    "mcp",         "namespace",        "shell",
    "tool_search", "web_search"};

// Returns the type of such a tool, without a version's date; empty for other tools.
std::string_view server_type(const Json& tool) {
  const Json* const type = tool.find("type");
  if (type == nullptr || !type->is_string()) return {};
  const std::string_view name = type->text();
  const auto found = std::ranges::find_if(kOfServers, [&](std::string_view one) {
    return name == one || (one == "web_search" && name.starts_with("web_search_"));
  });
  return found == std::end(kOfServers) ? std::string_view() : *found;
}

Json chosen(const Json& choice) {
  const std::string_view type = server_type(choice);
  if (type.empty()) return nested(choice);
  Fields::refuse("tool_choice", cat("tools of type ", shown(type), " are not supported"));
}

}  // namespace

void read_response_tools(Fields& fields, ResponseAsked& asked, Json& to) {
  if (fields.has("tools")) {
    if (!fields.raw("tools").is_array()) Fields::refuse("tools", "expected a list");
    to["tools"] = Json::array();
    std::set<std::string_view> left_out;
    for (const Json& one : fields.raw("tools")) {
      if (const std::string_view type = server_type(one); !type.empty()) {
        left_out.insert(type);
        continue;
      }
      asked.tools.push_back(one);
      to["tools"].push_back(nested(one));
    }
    for (const std::string_view type : left_out)
      asked.left_out += cat(asked.left_out.empty() ? "" : ", ", type);
    if (!asked.tools.empty()) asked.choice = "auto", asked.parallel = true;
  }
  if (fields.has("tool_choice")) {
    asked.choice = fields.raw("tool_choice");
    const Json* const list = asked.choice.find("tools");
    to["tool_choice"] = chosen(asked.choice);
    if (list != nullptr && list->is_array()) {
      const Json* const mode = asked.choice.find("mode");
      Json tools = Json::array();
      for (const Json& one : *list) tools.push_back(chosen(one));
      to["tool_choice"] = {
          {"type", "allowed_tools"},
          {"allowed_tools",
           {{"mode", mode == nullptr ? Json() : *mode}, {"tools", std::move(tools)}}}};
    }
  }
  if (fields.has("parallel_tool_calls")) {
    asked.parallel = fields.boolean_or("parallel_tool_calls", true);
    to["parallel_tool_calls"] = asked.parallel;
  }
  if (!fields.has("reasoning")) return;
  if (!fields.raw("reasoning").is_object()) Fields::refuse("reasoning", "expected an object");
  const Json* const effort = fields.raw("reasoning").find("effort");
  if (effort != nullptr) to["reasoning_effort"] = asked.effort = *effort;
}

// Converts {"format": {"type", "name", "schema" ...}} to a chat's form.
void read_response_text(Fields& fields, ResponseAsked& asked, Json& to) {
  if (!fields.has("text")) return;
  if (!fields.raw("text").is_object()) Fields::refuse("text", "expected an object");
  Fields text(&fields.raw("text"));
  text.ignore("verbosity");
  const bool has_format = text.has("format");
  if (has_format) asked.format = text.raw("format");
  text.finish();
  if (!has_format) return;
  const Json* const type = asked.format.find("type");
  if (type == nullptr || *type != "json_schema") {
    to["response_format"] = asked.format;
    return;
  }
  Json schema = Json::object();
  for (const auto& [name, value] : asked.format.members()) {
    const bool whole = name == "schema" && value.is_object();
    if (name != "type") schema.add(name, whole ? Json(json_in_order(value)) : value);
  }
  to["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace split::serve
