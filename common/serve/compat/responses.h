// POST /v1/responses in OpenAI's shape, for text: a chat's answer in other words. Nothing is
// stored, and what is beyond text is refused by name.
#pragma once

#include "http/route.h"

namespace split::serve {

// `chat` answers POST /v1/chat/completions.
http::Response responses(const http::Request& request, const http::Handler& chat);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> response_fields();

}  // namespace split::serve
