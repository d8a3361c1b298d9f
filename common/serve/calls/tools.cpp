#include "serve/calls/tools.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/resources/memory_budget.h"
#include "text/json/in_order.h"

namespace split::serve {
namespace {

using wire::Fields;
using Tool = AnswerForm::Tool;
using Choice = AnswerForm::Choice;

constexpr const char *kTools = "tools", *kChoice = "tool_choice";

// The text of a member, or nothing.
const std::string* text_in(const Json& json, const char* name) {
  const Json* const found = json.find(name);
  return found != nullptr && found->is_string() ? &found->text() : nullptr;
}

Tool tool_of(const Json& one, MemoryShare& memory) {
  if (!one.is_object()) Fields::refuse(kTools, "expected objects");
  const Json* const type = one.find("type");
  if (type != nullptr && *type != "function") {
    Fields::refuse(kTools, cat("expected tools of type \"function\", got ",
                               type->is_string() ? shown(type->text()) : "another type"));
  }
  const Json* const function = one.find("function");
  if (function == nullptr || !function->is_object()) {
    Fields::refuse(kTools, "expected {\"type\":\"function\",\"function\":{...}}");
  }
  const std::string* const name = text_in(*function, "name");
  if (name == nullptr || name->empty() || name->size() > AnswerForm::kMostName) {
    Fields::refuse(kTools, cat("expected names of 1 to ", AnswerForm::kMostName, " bytes"));
  }
  const Json* const parameters = function->find("parameters");
  if (parameters == nullptr || parameters->is_null()) return {*name, ""};
  if (!parameters->is_object()) {
    Fields::refuse(kTools, cat("parameters of ", shown(*name), ": expected an object"));
  }
  return {*name, json_in_order(*parameters, &memory)};
}

// Reads {"type":"function","function":{"name"}}, a choice of one tool.
const Tool& chosen(const Json& one, const std::vector<Tool>& tools) {
  const Json *type = one.find("type"), *function = one.find("function");
  const std::string* const name = function == nullptr ? nullptr : text_in(*function, "name");
  if (type == nullptr || *type != "function" || name == nullptr) {
    Fields::refuse(kChoice, "expected {\"type\":\"function\",\"function\":{\"name\"}}");
  }
  const auto tool = std::ranges::find(tools, *name, &Tool::name);
  if (tool == tools.end()) Fields::refuse(kChoice, cat("there is no tool ", shown(*name)));
  return *tool;
}

Choice mode_of(const Json& value) {
  if (value == "none") return Choice::kNone;
  if (value == "auto") return Choice::kAuto;
  if (value == "required") return Choice::kRequired;
  Fields::refuse(kChoice, "expected none, auto, required, a function or allowed_tools");
}

void read_choice(const Json& choice, AnswerForm& form) {
  if (choice.is_string()) {
    form.choice = mode_of(choice);
  } else if (const std::string* type = text_in(choice, "type"); type == nullptr) {
    Fields::refuse(kChoice, "expected none, auto, required, a function or allowed_tools");
  } else if (*type == "allowed_tools") {
    const Json *allowed = choice.find(type->c_str()), *mode = nullptr, *list = nullptr;
    if (allowed != nullptr) mode = allowed->find("mode"), list = allowed->find(kTools);
    if (mode == nullptr || list == nullptr || !list->is_array() || list->empty()) {
      Fields::refuse(kChoice, "allowed_tools: expected mode and tools");
    }
    form.choice = mode_of(*mode);
    std::vector<Tool> some;
    for (const Json& one : *list) {
      const Tool& tool = chosen(one, form.tools);
      if (std::ranges::find(some, tool.name, &Tool::name) == some.end()) some.push_back(tool);
    }
    form.tools = std::move(some);
  } else {
    form.tools = {chosen(choice, form.tools)};
    form.choice = Choice::kRequired;
    form.parallel = false;  // a named function is called once
  }
}

// Writes a call in the prompt's format.
std::string call_text(const Json& call, const AnswerFormat& format) {
  const Json* const function = call.find("function");
  const std::string* const name = function == nullptr ? nullptr : text_in(*function, "name");
  const Json* const arguments = function == nullptr ? nullptr : function->find("arguments");
  if (name == nullptr || arguments == nullptr) return {};
  const std::string quoted = json_quote(*name);
  std::string text = arguments->is_string() ? arguments->text() : json_in_order(*arguments);
  if (text.empty()) text = "{}";
  return cat(format.opens, quoted.substr(1, quoted.size() - 2), format.middle, text, format.closes);
}

// Joins the texts of content.
std::string words_of(const Json& message) {
  const Json* const content = message.find("content");
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return content->text();
  std::string all;
  if (!content->is_array()) return all;
  for (const Json& part : *content) {
    if (const std::string* const text = text_in(part, "text")) all += *text;
  }
  return all;
}

Json plain_message(std::string_view role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// Turns a call and a result into text of an assistant's and a user's message.
Json as_text(Json message, const AnswerFormat& format) {
  const std::string* const role = text_in(message, "role");
  const Json* const calls = message.find("tool_calls");
  if (role != nullptr && *role == "tool") {
    return plain_message("user", cat("<tool_response>\n", words_of(message), "\n</tool_response>"));
  }
  if (calls == nullptr || !calls->is_array() || calls->empty()) return message;
  std::string text = words_of(message);
  for (const Json& one : *calls) text += cat(text.empty() ? "" : "\n", call_text(one, format));
  return plain_message("assistant", std::move(text));
}

std::string short_id(std::string_view id) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr size_t kLength = 9;
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (id.size() == kLength && std::ranges::all_of(id, plain)) return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::string out;
  for (size_t i = 0; i < kLength; ++i, hash /= kLetters.size())
    out += kLetters[hash % kLetters.size()];
  return out;
}

void shorten(Json& value, const char* name) {
  if (value.is_object() && text_in(value, name) != nullptr)
    value[name] = short_id(value[name].text());
}

}  // namespace

Json read_tools(Fields& fields, AnswerForm& form, MemoryShare& memory) {
  for (const char* old : {"functions", "function_call"}) {
    const bool nothing = !fields.has(old) || fields.raw(old).empty() || fields.raw(old) == "none" ||
                         fields.raw(old) == "auto";
    if (!nothing) Fields::refuse(old, "is not supported here: its name is tools");
  }
  Json tools;
  if (fields.has(kTools)) tools = fields.take(kTools);
  if (!tools.is_null() && !tools.is_array()) Fields::refuse(kTools, "expected a list");
  if (tools.size() > AnswerForm::kMostTools) {
    Fields::refuse(kTools,
                   cat("expected at most ", AnswerForm::kMostTools, ", got ", tools.size()));
  }
  if (is_longer_than(AnswerForm::kMostBytes, tools)) {
    Fields::refuse(kTools, cat("expected at most ", AnswerForm::kMostBytes, " bytes in all"));
  }
  if (!tools.empty()) {
    form.choice = Choice::kAuto;
    for (const Json& one : tools) {
      Tool tool = tool_of(one, memory);
      if (std::ranges::find(form.tools, tool.name, &Tool::name) != form.tools.end()) {
        Fields::refuse(kTools, cat("there are two of the name ", shown(tool.name)));
      }
      form.tools.push_back(std::move(tool));
    }
  }
  form.parallel = fields.boolean_or("parallel_tool_calls", true);
  if (fields.has(kChoice)) read_choice(fields.raw(kChoice), form);
  if (form.choice == Choice::kRequired && form.tools.empty()) {
    Fields::refuse(kChoice, "\"required\" is for a request with tools");
  }
  if (form.tools.empty()) form.choice = Choice::kNone;
  return tools.empty() ? Json() : std::move(tools);
}

std::string tools_text(const Json& tools, MemoryShare& memory) {
  std::string text =
      "Tools are called by\n<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>\n"
      "and what they return comes back. There are:";
  for (const Json& one : tools) {
    Json shown = Json::object();
    for (const char* key : {"name", "description", "parameters"}) {
      const Json* const value = one["function"].find(key);
      if (value != nullptr && !value->is_null()) shown.add(key, *value);
    }
    text += "\n" + json_in_order(shown, &memory);
  }
  return text;
}

Json with_tools_told(Json messages, const Json& tools, const AnswerFormat& format,
                     MemoryShare& memory) {
  constexpr uint64_t kGrown = 4;
  memory.take(kGrown * memory.bytes() / 2);
  Json::Array told;
  std::string front = tools.empty() ? "" : tools_text(tools, memory);
  const auto in_front_of = [&front](Json message) {
    std::string content = front + "\n\n" + words_of(message);
    front.clear();
    message["content"] = std::move(content);
    return message;
  };
  bool behind_result = false;
  for (Json& one : messages.take_array()) {
    const std::string* const given = text_in(one, "role");
    const bool result = given != nullptr && *given == "tool";
    Json message = as_text(std::move(one), format);
    const std::string* const role = text_in(message, "role");
    const bool system = role != nullptr && (*role == "system" || *role == "developer");
    if (!front.empty() && (system || (format.no_system && role != nullptr && *role == "user"))) {
      message = in_front_of(std::move(message));
    } else if (!front.empty() && !format.no_system) {
      told.push_back(plain_message("system", std::exchange(front, {})));
    }
    // Results of several calls, and the user's text behind them, become one message: many templates
    // want users and assistants to take turns. Other messages stay as they are.
    const bool user = role != nullptr && *role == "user";
    if (user && behind_result) {
      told.back()["content"] = words_of(told.back()) + "\n" + words_of(message);
    } else {
      told.push_back(std::move(message));
    }
    behind_result = user && (result || behind_result);
  }
  return Json(std::move(told));
}

Json with_short_ids(Json messages) {
  Json::Array all = messages.take_array();
  for (Json& message : all) {
    shorten(message, "tool_call_id");
    const Json* const calls = message.find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    Json::Array list = message["tool_calls"].take_array();
    for (Json& one : list) shorten(one, "id");
    message["tool_calls"] = Json(std::move(list));
  }
  return Json(std::move(all));
}

}  // namespace split::serve
