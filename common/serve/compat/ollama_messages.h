// Messages of Ollama's chats as OpenAI's, where calls have ids and thoughts another name.
#pragma once

#include "base/json.h"

namespace split::serve {

// Without what says nothing; a result is of the first call of its name that has none yet.
Json ollama_messages(Json messages);

}  // namespace split::serve
