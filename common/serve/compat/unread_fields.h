// The fields of a completion or a chat that clients of OpenAI, llama.cpp and vLLM send and no route
// reads: one table for both programs. A field that changes no answer is ignored; one that would is
// refused by name, unless its value asks for the default.
#pragma once

#include <string_view>

#include "wire/fields.h"

namespace split::serve {

// Checks the fields that were not read, in place of finish(). Ignores null. Refuses an unknown
// field unless it is null. The first time that this process ignores a field with a value, it logs a
// line: clients send it with each request. Throws Error(kInput).
void finish_tolerant(const wire::Fields& fields);

}  // namespace split::serve
