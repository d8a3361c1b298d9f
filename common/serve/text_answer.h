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

}  // namespace split::serve
