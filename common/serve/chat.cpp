#include "serve/chat.h"

#include <algorithm>

#include "serve/text_answer.h"
#include "serve/unread_fields.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxMessages = 1024;
constexpr int kMaxTopLogprobs = 20;
constexpr std::string_view kRole = "{role}", kContent = "{content}";

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const size_t which =
        next == '\0' ? std::string_view::npos : std::string_view("nt\\").find(next);
    if (which == std::string_view::npos) {
      out += text[i];
    } else {
      out += "\n\t\\"[which];
      ++i;
    }
  }
  return out;
}

// A string, or a list of parts of which each is text.
std::string content_of(Fields& message) {
  if (!message.has("content")) return {};
  const Json& content = message.raw("content");
  if (content.is_string()) return content.text();
  if (!content.is_array()) Fields::refuse("messages", "expected content as text");
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object()) Fields::refuse("messages", "expected parts of content as objects");
    Fields fields(&part);
    if (fields.text("type") != "text") {
      Fields::refuse("messages", "expected content of type \"text\" alone");
    }
    text += fields.text("text");
  }
  return text;
}

std::string prompt_of(const Json& messages, const ChatTemplate& words) {
  if (!messages.is_array() || messages.empty() || messages.size() > kMaxMessages) {
    Fields::refuse("messages", cat("expected a list of 1..", kMaxMessages, " messages"));
  }
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
  std::string prompt;
  for (const Json& one : messages) {
    if (!one.is_object()) Fields::refuse("messages", "expected objects");
    Fields message(&one);
    const std::string role = message.text("role");
    if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
      Fields::refuse("messages", "expected roles system, developer, user and assistant");
    }
    prompt += words.message(role, content_of(message));
    for (const char* key : {"name", "refusal"}) message.ignore(key);
    message.finish();
  }
  return prompt + words.answer();
}

TextRequest read_request(Fields& fields, const TextModel& model, const ChatTemplate& words,
                         MemoryShare& memory) {
  TextRequest request;
  GenerateOptions& options = request.options;
  const std::string prompt = prompt_of(fields.raw("messages"), words);
  request.prompts = read_prompts(prompt, "messages", model, false, 1);
  // To the end of the context, as OpenAI's; "max_tokens" is the older name.
  const auto room =
      static_cast<int>(static_cast<size_t>(model.config->context) - request.prompts[0].size());
  options.max_tokens = room;
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    options.max_tokens =
        static_cast<int>(fields.integer_or(key, 0, kMaxTokensAsked, options.max_tokens));
  }
  read_common(fields, request);
  read_format(fields, model, memory, request);
  if (!words.stop().empty()) options.stop.push_back(words.stop());
  request.skip_spaces = words.between.ends_with(' ');
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

ChatTemplate ChatTemplate::parse(std::string_view text) {
  const size_t role = text.find(kRole), content = text.find(kContent);
  const bool each_once = role != text.npos && content != text.npos &&
                         text.find(kRole, role + 1) == text.npos &&
                         text.find(kContent, content + 1) == text.npos;
  if (!each_once || content < role) {
    throw Error(ErrorKind::kInput,
                "expected text with {role} and then {content}, each once, like "
                "\"{role}: {content}\\n\"");
  }
  const size_t after_role = role + kRole.size();
  return {unescaped(text.substr(0, role)), unescaped(text.substr(after_role, content - after_role)),
          unescaped(text.substr(content + kContent.size()))};
}

std::string ChatTemplate::message(std::string_view role, std::string_view content) const {
  return cat(before, role, between, content, behind);
}

std::string ChatTemplate::answer() const {
  std::string text = before + "assistant" + between;
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

http::Response chat_completions(const http::Request& request, const FindModel& find,
                                const ChatTemplate& words) {
  Fields fields(request.body, request.memory.get());
  TextModel model = find(fields.text_or("model", ""));
  TextRequest parsed = read_request(fields, model, words, *request.memory);
  return text_answer(request, std::move(model), std::move(parsed), kChatShape);
}

std::vector<http::RequestField> chat_fields() {
  std::vector<http::RequestField> fields = {
      {"model", "string", "A model's id (GET /v1/models); the first one by default."},

      {"messages", "array", "The messages, each with role and content.", true},
      {"max_tokens", "integer",
       "The most tokens to write; by default as many as the context holds."},
      {"max_completion_tokens", "integer", "The same as max_tokens."},
      {"logprobs", "boolean", "Returns the log-probability of each token."},
      {"top_logprobs", "integer", "Returns those of this many of the likeliest tokens too."}};
  const std::vector<http::RequestField> common = common_fields();
  fields.insert(fields.end(), common.begin(), common.end());
  return fields;
}

}  // namespace split::serve
