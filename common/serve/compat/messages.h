// POST /v1/messages and /v1/messages/count_tokens, for clients of that family: a chat's answer in
// their words, whole and streamed. What is beyond text and functions is refused by name.
#pragma once

#include "http/route.h"

namespace split::serve {

// `chat` answers POST /v1/chat/completions, `count` the same body with {"prompt_tokens"}.
// `statuses`: those of such a chat. Their errors have their family's shape.
std::vector<http::Route> message_routes(http::Handler chat, http::Handler count,
                                        const std::vector<int>& statuses);

}  // namespace split::serve
