#include "serve/completions.h"

#include "serve/chat.h"
#include "serve/compat/unread_fields.h"
#include "serve/models.h"
#include "serve/text_answer.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxPrompts = 64;
constexpr int kUsualTokens = 16;

// Reads a completion. A text on a session may begin with `messages` as well, like a chat.
TextRequest read_completion_request(Fields& fields, TextModel& model, const http::Request& http,
                                    bool chats = false) {
  MemoryShare& memory = *http.memory;
  TextRequest request;
  GenerateOptions& options = request.options;
  const bool special = fields.boolean_or("special", true);
  const bool given = fields.has("prompt");
  int most = kUsualTokens;
  if (chats && fields.has("messages")) {
    if (given) Fields::refuse("prompt", "expected none beside 'messages'");
    model.special_in_content = special;
    most = read_chat_prompt(fields, model, http, request);
  } else {
    request.prompts = read_prompts(given ? fields.take("prompt") : Json(""), "prompt", model,
                                   special, given ? kMaxPrompts : 1, memory);
  }
  options.max_tokens = static_cast<int>(fields.integer_or("max_tokens", 0, kMaxTokensAsked, most));
  read_common(fields, request, memory);
  AnswerForm form;
  read_format(fields, model, memory, form, true);
  set_form(std::move(form), model, memory, request);
  options.logprobs = static_cast<int>(fields.integer_or("logprobs", 0, kMaxLogprobs, -1));
  request.echo = fields.boolean_or("echo", false);
  options.score_prompt = request.echo && options.logprobs >= 0;
  // The likeliest are known only at the end.
  request.best_of = static_cast<int>(fields.integer_or(
      "best_of", request.choices, request.stream ? request.choices : kMaxChoices, request.choices));
  return request;
}

// Reads the fields of a text on a session.
void read_session(Fields& fields, TextRequest& request) {
  if (request.prompts.size() != 1) Fields::refuse("prompt", "expected one");
  if (request.choices != 1) Fields::refuse("n", "expected 1: the session has one text");
  if (request.best_of != 1) Fields::refuse("best_of", "expected 1: the session has one text");
  const auto most = static_cast<int64_t>(request.prompts[0].size()) - 1;
  request.options.generated =
      static_cast<size_t>(fields.integer_or("generated", 0, std::min<int64_t>(most, INT32_MAX), 0));
  if (request.echo && request.options.generated > 0) {
    Fields::refuse("echo", "is not for a text that goes on");
  }
  request.return_token_ids = true;
}

http::Response answer(const http::Request& http, const Fields& fields, TextModel model,
                      TextRequest request, const std::function<void()>& accepted = {}) {
  finish_tolerant(fields);
  check_cost(request, *model.config, *http.memory);
  if (accepted) accepted();
  return text_answer(http, std::move(model), std::move(request), kCompletionShape);
}

}  // namespace

http::Response completions(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get());
  TextModel model = find(fields.text_or("model", ""));
  if (model.config == nullptr) {
    if (!fields.has("prompt") || !fields.raw("prompt").is_string()) refuse_while_loading();
    Json words = Json::object();
    words["special"] = fields.boolean_or("special", true);
    words["prompt"] = fields.take("prompt");
    const auto most = fields.integer_or("max_tokens", 0, kMaxTokensAsked, kUsualTokens);
    TextRequest opened =
        read_opened(fields, std::move(words), static_cast<int>(most), *request.memory);
    finish_tolerant(fields);
    return text_answer(request, std::move(model), std::move(opened), kCompletionShape);
  }
  TextRequest parsed = read_completion_request(fields, model, request);
  return answer(request, fields, std::move(model), std::move(parsed));
}

http::Response session_completions(const http::Request& request, TextModel model,
                                   const std::function<void(const SessionClient&)>& accepted) {
  Fields fields(request.body, request.memory.get());
  if (fields.text_or("model", model.id) != model.id) {
    Fields::refuse("model", "expected the one in the path, or none");
  }
  TextRequest parsed = read_completion_request(fields, model, request, true);
  read_session(fields, parsed);
  SessionClient client{.again = fields.boolean_or("again", false)};
  if (fields.has("can")) {
    client.can = static_cast<int>(fields.integer("can", 0, model.config->layers));
  }
  return answer(request, fields, std::move(model), std::move(parsed), [&] { accepted(client); });
}

std::vector<http::RequestField> completion_fields() {
  std::vector<http::RequestField> fields = {
      {"model", "string", "A model's id (GET /v1/models); the first one by default."},

      {"prompt", "", "A text, a list of texts, a list of token ids, or a list of such lists."},
      {"max_tokens", "integer", "The most tokens to write; 16 by default."},
      {"logprobs", "integer",
       "Returns the log-probabilities of this many of the likeliest tokens at each position."},
      {"best_of", "integer",
       "Makes so many texts for each prompt and returns the n likeliest, not as a stream."},
      {"echo", "boolean", "Returns the prompt before the text."},
      {"special", "boolean",
       "Whether special tokens in a prompt's text are read as tokens (true) or as text."}};
  const std::vector<http::RequestField> common = common_fields();
  fields.insert(fields.end(), common.begin(), common.end());
  return fields;
}

std::vector<http::RequestField> session_completion_fields() {
  std::vector<http::RequestField> fields = completion_fields();
  fields.push_back(
      {"generated", "integer", "The number of the prompt's last ids that were generated before."});
  fields.push_back(
      {"messages", "array", "A chat in place of the prompt, with what belongs to it."});
  fields.push_back({"can", "integer", "The lowest cut that this client could take over at."});
  fields.push_back({"again", "boolean", "Another session had these rows, and was lost."});
  return fields;
}

}  // namespace split::serve
