// GET /v1/models in OpenAI's shape.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "http/message.h"
#include "text/chat_template.h"
#include "text/form/answer_format.h"

namespace split::serve {

http::Response model_list(std::span<const std::string> ids);
// `chat`: describe_chat(), or null.
http::Response model_entry(const std::string& id, const Json& chat);
// Describes how a model that writes answers a chat: its template (null: it has none) and the form
// of its calls and thoughts.
Json describe_chat(const ChatTemplate* chat, const AnswerFormat& format);

// Throws HttpError 404 `model_not_found`, which names the models that there are.
[[noreturn]] void refuse_model(std::span<const std::string> ids);

// Throws HttpError 503 `loading`: what is asked for needs more of the model than is known yet.
[[noreturn]] void refuse_while_loading();

// Throws HttpError 400 `no_head`, for a route of texts that an encoder is asked by.
[[noreturn]] void refuse_without_head();

}  // namespace split::serve
