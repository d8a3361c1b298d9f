// Chats: messages become a prompt by the model's own template, and the model goes on from there. A
// model without a template goes on from the last message's content, so that a base model says
// something; what system messages say stands before it, each with an empty line behind it.
#pragma once

#include "http/server/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// POST /v1/chat/completions in OpenAI's shape.
http::Response chat_completions(const http::Request& request, const FindModel& find);
// POST /apply-template as llama-server answers it: {"prompt"}.
http::Response apply_template(const http::Request& request, const FindModel& find);

// The members of their bodies, for /openapi.json.
std::vector<http::RequestField> chat_fields();
std::vector<http::RequestField> template_fields();

}  // namespace split::serve
