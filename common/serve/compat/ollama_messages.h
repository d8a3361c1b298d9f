// Converts messages of Ollama's chats to OpenAI's, which have ids of calls and other names.
#pragma once

#include "base/json.h"

namespace split::serve {

// Leaves out empty members; a result belongs to the first open call of its name.
Json ollama_messages(Json messages);

}  // namespace split::serve
