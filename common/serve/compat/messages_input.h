// Converts the body of POST /v1/messages to a chat's.
#pragma once

#include "base/json.h"
#include "wire/fields.h"

namespace split::serve {

// Reads the whole body. `counts`: the prompt is only counted. Throws Error(kInput) that names the
// field.
Json chat_of_messages(wire::Fields& fields, bool counts);

}  // namespace split::serve
