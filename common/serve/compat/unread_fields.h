// The fields of a completion or a chat that clients of OpenAI, llama.cpp and vLLM send and no route
// reads: one table of what each is, for both programs. One that changes no answer is ignored; one
// that would change it is refused by name, but where its value asks for what happens anyway.
#pragma once

#include <string_view>

#include "wire/fields.h"

namespace split::serve {

// Looks at the fields that nobody asked for, in place of finish(). Null is nothing. A field that is
// not in the table is refused where it is not null. The first time that this process ignores a
// field that has a value, one line of log names it: clients send it with each request. Throws
// Error(kInput).
void finish_tolerant(const wire::Fields& fields);

}  // namespace split::serve
