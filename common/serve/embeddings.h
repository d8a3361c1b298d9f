// POST /v1/embeddings in OpenAI's shape, once for both programs (run/sentences.h makes them).
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

http::Response embeddings(const http::Request& request, const FindModel& find);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> embedding_fields();

}  // namespace split::serve
