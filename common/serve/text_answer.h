// The answer to a completion or a chat: its choices, several at once, as JSON or as events, with
// their cost. A Shape has the differences (calls/shapes.h).
#pragma once

#include "http/message.h"
#include "serve/calls/shapes.h"
#include "serve/text_request.h"

namespace split::serve {

// Answers with JSON, or with events if the request has "stream".
http::Response text_answer(const http::Request& http, TextModel model, TextRequest request,
                           const Shape& shape);

// Tokens of a text: the prompt's, those of them that were cached, and new ones.
struct TokenCounts {
  size_t prompt = 0, cached = 0, completion = 0;
};
// {"prompt_tokens","prompt_tokens_details","completion_tokens","total_tokens","splitcompute"?};
// `read_usage_of`, for texts that are only read, has no members about answers.
Json usage_of(const TextBackend& work, const TokenCounts& tokens);
Json read_usage_of(const TextBackend& work, size_t tokens);

}  // namespace split::serve
