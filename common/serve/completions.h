// POST /v1/completions in OpenAI's shape, once for both programs: the cloud runs the whole model,
// the edge its pair.
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// Answers the request: JSON, or events if it has "stream". Throws Error(kInput) for an invalid
// body.
http::Response completions(const http::Request& request, const FindModel& find);

// Completes one text on a sequence of the client's, which has its rows when the text ends: one
// prompt, and perhaps how many of its last ids were generated. Always returns the ids of the prompt
// and the text. Calls `accepted`, with the client's fields, before anything runs.
struct SessionClient {
  std::optional<int> can = {};  // the lowest cut that it could take over at
  bool again = false;           // another session had these rows, and was lost
};
http::Response session_completions(const http::Request& request, TextModel model,
                                   const std::function<void(const SessionClient&)>& accepted);

// The members of their bodies, for /openapi.json.
std::vector<http::RequestField> completion_fields();
std::vector<http::RequestField> session_completion_fields();

}  // namespace split::serve
