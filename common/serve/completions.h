// POST /v1/completions in OpenAI's shape, once for both programs: the cloud runs the whole model,
// the edge its pair.
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// Answers the request: JSON, or events when it says "stream". Throws Error(kInput) for a body that
// is wrong.
http::Response completions(const http::Request& request, const FindModel& find);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> completion_fields();

}  // namespace split::serve
