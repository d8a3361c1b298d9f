// GET /v1/models in OpenAI's shape.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "http/message.h"
#include "text/chat_template.h"
#include "text/form/answer_format.h"

namespace split::serve {

// `profiles`: the profile of each, or none.
http::Response model_list(std::span<const std::string> ids,
                          std::span<const std::string> profiles = {});
// `chat`: describe_chat(), or null.
http::Response model_entry(const std::string& id, const Json& chat);
// Describes the chats of a model that writes answers: its template (null: none) and the form of its
// calls and thoughts.
Json describe_chat(const ChatTemplate* chat, const AnswerFormat& format);

// Throws HttpError 404 `model_not_found`, which lists the known models.
[[noreturn]] void refuse_model(std::span<const std::string> ids);

// Throws HttpError 503 `loading`: the request needs more of the model than is known yet.
[[noreturn]] void refuse_while_loading();

// Throws HttpError 400 `no_head`: a route of texts was asked for an encoder.
[[noreturn]] void refuse_without_head();

}  // namespace split::serve
