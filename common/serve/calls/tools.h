// Tools of a chat, in OpenAI's words, which other routes retell: read and bounded once. Knows no
// template and no grammar.
#pragma once

#include "text/form/answer_form.h"
#include "wire/fields.h"

namespace split::serve {

// Reads tools, tool_choice and parallel_tool_calls into `form`, and returns the tools as they were
// given, in their order: null where there are none. Throws Error(kInput) that names the field.
Json read_tools(wire::Fields& fields, AnswerForm& form, MemoryShare& memory);

// Messages for a template that writes no tools, or for none: the tools are told in front, and calls
// and results are the text of messages.
Json with_tools_told(Json messages, const Json& tools, const AnswerFormat& format,
                     MemoryShare& memory);
// The text that tells of them.
std::string tools_text(const Json& tools, MemoryShare& memory);

// Nine letters and digits for an id of any maker, where the template wants these.
Json with_short_ids(Json messages);

}  // namespace split::serve
