// POST /v1/responses in OpenAI's shape, for text: a chat's answer in another format. Stores
// nothing, and refuses content beyond text by name.
#pragma once

#include "http/route.h"

namespace split::serve {

// `chat` answers POST /v1/chat/completions.
http::Response responses(const http::Request& request, const http::Handler& chat);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> response_fields();

}  // namespace split::serve
