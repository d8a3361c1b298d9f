// The answer to a completion or a chat: its choices, several at once, as JSON or as events, with
// what they cost. The two differ in their words, which a Shape has (calls/shapes.h).
#pragma once

#include "http/message.h"
#include "serve/calls/shapes.h"
#include "serve/text_request.h"

namespace split::serve {

// Answers with JSON, or with events when the request says "stream".
http::Response text_answer(const http::Request& http, TextModel model, TextRequest request,
                           const Shape& shape);

// Tokens that a text took: of the prompt, those of them that were not computed, and new ones.
struct TokenCounts {
  size_t prompt = 0, cached = 0, completion = 0;
};
// {"prompt_tokens","prompt_tokens_details","completion_tokens","total_tokens","splitcompute"?}; for
// texts that are only read `read_usage_of`: without what is of answers.
Json usage_of(const TextBackend& work, const TokenCounts& tokens);
Json read_usage_of(const TextBackend& work, size_t tokens);

}  // namespace split::serve
