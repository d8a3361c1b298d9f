// Tools of a chat, in OpenAI's format, which other routes convert to: read and bounded once. Knows
// no template and no grammar.
#pragma once

#include "text/form/answer_form.h"
#include "wire/fields.h"

namespace split::serve {

// Reads tools, tool_choice and parallel_tool_calls into `form`, and returns the tools in their
// order, or null. Throws Error(kInput) that names the field.
Json read_tools(wire::Fields& fields, AnswerForm& form, MemoryShare& memory);

// Prepares messages for a template that writes no tools, or for no template: a description of the
// tools stands in front, and calls and results are the text of messages.
Json with_tools_told(Json messages, const Json& tools, const AnswerFormat& format,
                     MemoryShare& memory);
// Describes the tools in text.
std::string tools_text(const Json& tools, MemoryShare& memory);

// Shortens all ids to nine letters and digits, if the template wants these.
Json with_short_ids(Json messages);

}  // namespace split::serve
