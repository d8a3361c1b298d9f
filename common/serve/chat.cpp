#include "serve/chat.h"

#include <algorithm>

#include "base/resources/memory_budget.h"
#include "serve/calls/tools.h"
#include "serve/compat/unread_fields.h"
#include "serve/models.h"
#include "serve/text_answer.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxMessages = 1024;
constexpr size_t kMaxNames = 256;  // for a template; the search takes time for each
constexpr int kMaxTopLogprobs = 20;

// Calls `take` with a message's text: a string, or each part of a list of texts.
template <typename Take>
void read_content(Fields& message, const Take& take) {
  if (!message.has("content")) return;
  const Json& content = message.raw("content");
  if (content.is_string()) return take(content.text());
  if (!content.is_array()) Fields::refuse("messages", "expected content as text");
  for (const Json& part : content) {
    if (!part.is_object()) Fields::refuse("messages", "expected parts of content as objects");
    Fields fields(&part);
    if (fields.text("type") != "text") {
      Fields::refuse("messages", "expected content of type \"text\" alone");
    }
    fields.text("text");
    take(part["text"].text());
  }
}

// Checks messages. Returns, if `wanted`, the prompt of a model without a template: system messages,
// each with an empty line behind it, and the content of the last message.
std::string read_messages(const Json& messages, bool wanted, MemoryShare& memory) {
  if (!messages.is_array() || messages.empty() || messages.size() > kMaxMessages) {
    Fields::refuse("messages", cat("expected a list of 1..", kMaxMessages, " messages"));
  }
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  constexpr uint64_t kGrown = 3;  // a text that doubles, beside the old one
  std::string plain;
  for (const Json& one : messages) {
    if (!one.is_object()) Fields::refuse("messages", "expected objects");
    Fields message(&one);
    const std::string role = message.text("role");
    if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
      Fields::refuse("messages", "expected roles system, developer, user, assistant and tool");
    }
    const bool last = &one == &messages[messages.size() - 1];
    const bool system = !last && (role == "system" || role == "developer");
    const size_t before = plain.size();
    read_content(message, [&](const std::string& said) {
      if (!wanted || !(system || last)) return;
      memory.take(kGrown * said.size());
      plain += said;
    });
    if (system && plain.size() > before) plain += "\n\n";
    for (const char* key : {"name", "refusal", "reasoning_content", "tool_calls", "tool_call_id"}) {
      message.ignore(key);
    }
    // Clients send an answer's null members back.
    message.each_unread([](const std::string& name, const Json& value) {
      if (!value.is_null()) Fields::refuse_unknown(name);
    });
  }
  return plain;
}

struct Chat {
  ChatInput input;
  std::string plain;  // the prompt of a model without a template
  AnswerForm form;
};

// Whether a thought begins in the prompt already.
bool ends_inside(const TextModel& model, std::span<const int32_t> prompt) {
  constexpr size_t kLast = 16;  // tokens of a mark and white space
  const std::string& mark = model.format->thought.opens;
  if (mark.empty() || model.tokenizer == nullptr) return false;
  std::string end = model.tokenizer->decode(prompt.last(std::min(kLast, prompt.size())));
  end.resize(end.find_last_not_of(" \t\n\r") + 1);
  return end.ends_with(mark);
}

// Reads reasoning_effort: "none" turns thoughts off, by the templates' name for it.
void read_effort(Fields& fields, const TextModel& model, ChatInput& input) {
  if (!fields.has("reasoning_effort") || model.format == nullptr || !model.format->thinks()) return;
  const Json& effort = fields.raw("reasoning_effort");
  if (effort == "none") input.more["enable_thinking"] = false;
}

// Reads tools, and the model's part of the form.
void read_chat_form(Fields& fields, const TextModel& model, Chat& chat, MemoryShare& memory) {
  if (model.format != nullptr) chat.form.format = *model.format;
  chat.input.tools = read_tools(fields, chat.form, memory);
  const auto known = chat.form.format.calls;
  if (known != AnswerFormat::Calls::kNone) return;
  if (chat.form.choice == AnswerForm::Choice::kRequired) {
    Fields::refuse("tool_choice", "it is not known how this model's template writes calls");
  }
  chat.form.choice = AnswerForm::Choice::kNone;
}

// Reads a chat. Without a template, members for a template stay unread, and are refused by name.
Chat read_chat(Fields& fields, const TextModel& model, MemoryShare& memory) {
  Chat chat;
  read_chat_form(fields, model, chat, memory);
  chat.plain = read_messages(fields.raw("messages"), model.chat == nullptr, memory);
  if (model.chat == nullptr) {
    // Without a template, the text continues the last message anyway.
    if (fields.has("continue_final_message")) fields.boolean_or("continue_final_message", true);
    if (!chat.input.tools.empty())
      chat.plain = tools_text(chat.input.tools, memory) + "\n\n" + chat.plain;
    return chat;
  }
  chat.input.messages = fields.take("messages");
  const AnswerFormat& format = chat.form.format;
  if (format.calls == AnswerFormat::Calls::kPrompted) {
    chat.input.messages = with_tools_told(std::move(chat.input.messages),
                                          std::exchange(chat.input.tools, {}), format, memory);
  }
  if (format.short_ids) chat.input.messages = with_short_ids(std::move(chat.input.messages));
  if (fields.has("chat_template_kwargs")) {
    chat.input.more = fields.take("chat_template_kwargs");
    if (!chat.input.more.is_object() || chat.input.more.size() > kMaxNames) {
      Fields::refuse("chat_template_kwargs", cat("expected an object of at most ", kMaxNames));
    }
  }
  read_effort(fields, model, chat.input);
  chat.input.add_generation_prompt = fields.boolean_or("add_generation_prompt", true);
  chat.input.continue_final_message = fields.boolean_or("continue_final_message", false);
  return chat;
}

// Returns the request that a template runs for.
JinjaCaller caller_of(const http::Request& request) {
  JinjaCaller caller{.memory = request.memory.get()};
  if (request.client_gone) caller.waits = [&request] { return !request.client_gone(); };
  return caller;
}

// Returns the result of `make`; an error of the template becomes an error of its own.
template <typename Make>
auto by_template(const Make& make) {
  try {
    return make();
  } catch (const JinjaUnsupported& error) {
    throw http::HttpError(501, "chat_template_unsupported",
                          cat("the model's chat template: ", error.what()));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput || !error.field().empty()) throw;
    throw http::HttpError(400, "chat_template_refused", error.what());
  }
}

std::vector<std::vector<int32_t>> prompt_of(Chat chat, const TextModel& model,
                                            const http::Request& http) {
  constexpr const char* kName = "messages";
  if (model.chat == nullptr) {
    return read_prompts(Json(std::move(chat.plain)), kName, model, model.special_in_content, 1,
                        *http.memory);
  }
  if (model.tokenizer == nullptr) Fields::refuse(kName, "the model has no tokenizer");
  std::vector<int32_t> ids = by_template([&] {
    return model.chat->encode(std::move(chat.input), *model.tokenizer, model.special_in_content,
                              static_cast<size_t>(model.config->context), caller_of(http));
  });
  if (ids.empty())
    throw http::HttpError(400, "chat_template_refused", "the template writes nothing");
  return {checked_prompt(std::move(ids), kName, *model.config)};
}

// Reads a chat that begins before the model is known.
TextRequest read_opened_chat(Fields& fields, const TextModel& model, MemoryShare& memory) {
  read_messages(fields.raw("messages"), false, memory);
  if (fields.has("tools") && !fields.raw("tools").empty()) refuse_while_loading();
  if (model.own_template || fields.boolean_or("logprobs", false)) refuse_while_loading();
  Json words = Json::object();
  words["special"] = model.special_in_content;
  for (const char* key :
       {"messages", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"}) {
    if (fields.has(key)) words[key] = fields.take(key);
  }
  int most = -1;
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    if (fields.has(key)) most = static_cast<int>(fields.integer(key, 0, kMaxTokensAsked));
  }
  TextRequest request = read_opened(fields, std::move(words), most, memory);
  // A stream's first event has the prompt's ids, which are not known yet.
  if (request.stream && request.return_token_ids) refuse_while_loading();
  finish_tolerant(fields);
  return request;
}

TextRequest read_chat_request(Fields& fields, const TextModel& model, const http::Request& http) {
  MemoryShare& memory = *http.memory;
  TextRequest request;
  GenerateOptions& options = request.options;
  // To the end of the context, like OpenAI's; "max_tokens" is the older name.
  AnswerForm form;
  options.max_tokens = read_chat_prompt(fields, model, http, request, &form);
  request.to_the_end = true;
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    if (fields.has(key)) request.to_the_end = false;
    options.max_tokens =
        static_cast<int>(fields.integer_or(key, 0, kMaxTokensAsked, options.max_tokens));
  }
  read_common(fields, request, memory);
  read_format(fields, model, memory, form);
  set_form(std::move(form), model, memory, request);
  const int top = static_cast<int>(fields.integer_or("top_logprobs", 0, kMaxTopLogprobs, 0));
  if (fields.boolean_or("logprobs", false)) {
    options.logprobs = top;
  } else if (top > 0) {
    Fields::refuse("top_logprobs", "is for \"logprobs\": true");
  }
  finish_tolerant(fields);
  check_cost(request, *model.config, memory);
  return request;
}

}  // namespace

int read_chat_prompt(Fields& fields, const TextModel& model, const http::Request& http,
                     TextRequest& request, AnswerForm* form) {
  Chat chat = read_chat(fields, model, *http.memory);
  if (form != nullptr) *form = chat.form;
  request.prompts = prompt_of(std::move(chat), model, http);
  if (form != nullptr && form->format.thinks())
    form->inside = ends_inside(model, request.prompts[0]);
  request.options.min_tokens = model.chat == nullptr ? 1 : 0;  // a base model's least
  request.skip_spaces = model.chat == nullptr;
  return model.config->context - static_cast<int>(request.prompts[0].size());
}

http::Response chat_completions(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  TextModel model = find(fields.text_or("model", ""));
  TextRequest parsed = model.config == nullptr ? read_opened_chat(fields, model, *request.memory)
                                               : read_chat_request(fields, model, request);
  return text_answer(request, std::move(model), std::move(parsed), kChatShape);
}

http::Response count_chat_tokens(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  const TextModel model = find(fields.text_or("model", ""));
  if (model.config == nullptr) refuse_while_loading();
  if (model.config->encodes()) refuse_without_head();
  TextRequest parsed;
  AnswerForm form;
  read_chat_prompt(fields, model, request, parsed, &form);
  finish_tolerant(fields);
  return http::Response::json(200, Json{{"prompt_tokens", parsed.prompts[0].size()}}.dump() + "\n");
}

http::Response apply_template(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  const TextModel model = find(fields.text_or("model", ""));
  if (model.config->encodes()) refuse_without_head();
  Chat chat = read_chat(fields, model, *request.memory);
  fields.finish();
  const std::string prompt = model.chat == nullptr ? std::move(chat.plain) : by_template([&] {
    return model.chat->render(std::move(chat.input), caller_of(request));
  });
  size_t quoted = 0;
  for (const char c : prompt) {
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 || byte == 0x7f ? 6 : byte < 0x80 && c != '"' && c != '\\' ? 1 : 3;
  }
  request.memory->take(4 * quoted);  // for quoting it, and for the answer
  return http::Response::json(200, cat("{\"prompt\":", json_quote(prompt), "}\n"));
}

namespace {

std::vector<http::RequestField> message_fields() {
  return {{"model", "string", "A model's id (GET /v1/models); the first one by default."},
          {"messages", "array", "The messages, each with role and content.", true}};
}

// Members that need a template.
const std::vector<http::RequestField> kTemplateFields = {
    {"tools", "array", "Functions that the model may call, each with its schema."},
    {"tool_choice", "", "auto, none, required, a function, or allowed_tools."},
    {"parallel_tool_calls", "boolean", "Whether there may be several calls (true)."},
    {"add_generation_prompt", "boolean", "Whether the prompt ends where an answer begins (true)."},
    {"continue_final_message", "boolean", "Whether the answer goes on with the last message."},
    {"chat_template_kwargs", "object", "Other names for the template."}};

void append(std::vector<http::RequestField>& fields, const std::vector<http::RequestField>& more) {
  fields.insert(fields.end(), more.begin(), more.end());
}

}  // namespace

std::vector<http::RequestField> template_fields() {
  std::vector<http::RequestField> fields = message_fields();
  append(fields, kTemplateFields);
  return fields;
}

std::vector<http::RequestField> chat_fields() {
  std::vector<http::RequestField> fields = template_fields();
  append(fields, {{"max_tokens", "integer",
                   "The most tokens to write; by default as many as the context holds."},
                  {"max_completion_tokens", "integer", "The same as max_tokens."},
                  {"logprobs", "boolean", "Returns the log-probability of each token."},
                  {"top_logprobs", "integer", "Returns those of this many of the likeliest too."}});
  append(fields, common_fields());
  return fields;
}

}  // namespace split::serve
