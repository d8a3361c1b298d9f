// Chats: messages become a prompt by the model's own template, and the model continues it. A model
// without a template continues the last message's content, so that base models can answer; system
// messages stand before it, each with an empty line behind it.
#pragma once

#include "http/route.h"
#include "serve/text_request.h"

namespace split::serve {

// POST /v1/chat/completions in OpenAI's shape.
http::Response chat_completions(const http::Request& request, const FindModel& find);
// Returns {"prompt_tokens"} for such a body, equal to the answer's.
http::Response count_chat_tokens(const http::Request& request, const FindModel& find);
// POST /apply-template in llama-server's shape: {"prompt"}.
http::Response apply_template(const http::Request& request, const FindModel& find);

// Reads messages and their options into the request's prompt, and the model's part of its text;
// with `form`, the answer's form. Returns how many tokens fit behind the prompt.
int read_chat_prompt(wire::Fields& fields, const TextModel& model, const http::Request& http,
                     TextRequest& request, AnswerForm* form = nullptr);

// The members of their bodies, for /openapi.json.
std::vector<http::RequestField> chat_fields();
std::vector<http::RequestField> template_fields();

}  // namespace split::serve
