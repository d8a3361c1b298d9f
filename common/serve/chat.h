// Chats: messages become a prompt by the model's own template, and the model goes on from there. A
// model without a template goes on from the last message's content, so that a base model says
// something; what system messages say stands before it, each with an empty line behind it.
#pragma once

#include "http/route.h"
#include "serve/text_request.h"

namespace split::serve {

// POST /v1/chat/completions in OpenAI's shape.
http::Response chat_completions(const http::Request& request, const FindModel& find);
// {"prompt_tokens"} of the same body: what an answer to it reports.
http::Response count_chat_tokens(const http::Request& request, const FindModel& find);
// POST /apply-template as llama-server answers it: {"prompt"}.
http::Response apply_template(const http::Request& request, const FindModel& find);

// Reads messages and what belongs to them into the request's prompt, and what follows of their
// model for its text; with `form`, what its answer may have. Returns how many tokens fit behind
// them.
int read_chat_prompt(wire::Fields& fields, const TextModel& model, const http::Request& http,
                     TextRequest& request, AnswerForm* form = nullptr);

// The members of their bodies, for /openapi.json.
std::vector<http::RequestField> chat_fields();
std::vector<http::RequestField> template_fields();

}  // namespace split::serve
