// POST /v1/chat/completions in OpenAI's shape. No model here knows chat: the messages become one
// text by a plain template, and the model goes on from there.
#pragma once

#include <string>
#include <string_view>

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// One message as text: what stands before its role, between role and content, and behind. A chat is
// its messages one after the other and then the beginning of the assistant's next one; an answer
// ends where the template would go on with another message.
struct ChatTemplate {
  std::string before, between = ": ", behind = "\n";

  // "{role}: {content}\n": `{role}` and then `{content}`, each once; \n, \t and \\ are what they
  // are in C. Throws Error(kInput).
  static ChatTemplate parse(std::string_view text);

  std::string message(std::string_view role, std::string_view content) const;
  // Where the answer begins; no spaces at its end, which would be a token of their own.
  std::string answer() const;
  std::string stop() const { return behind + before; }  // may be empty
};
inline constexpr std::string_view kDefaultChatTemplate = "{role}: {content}\\n";

http::Response chat_completions(const http::Request& request, const FindModel& find,
                                const ChatTemplate& words);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> chat_fields();

}  // namespace split::serve
