// POST /v1/messages and /v1/messages/count_tokens, for clients of that family: a chat's answer in
// their format, whole and streamed. Refuses content beyond text and functions by name.
#pragma once

#include "http/route.h"

namespace split::serve {

// `chat` answers POST /v1/chat/completions, `count` an equal body with {"prompt_tokens"}.
// `statuses`: a chat's. Errors have this family's shape.
std::vector<http::Route> message_routes(http::Handler chat, http::Handler count,
                                        const std::vector<int>& statuses);

}  // namespace split::serve
