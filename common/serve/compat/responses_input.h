// The body of POST /v1/responses as a chat's: its items as messages, its flat tools as nested ones.
#pragma once

#include "wire/fields.h"

namespace split::serve {

// Fields of the request that the answer repeats.
struct ResponseAsked {
  Json instructions, max_output_tokens, temperature, top_p;
  Json format = {{"type", "text"}};
  Json tools = Json::array(), choice = "none", effort;
  bool parallel = false;
  std::string left_out;  // types of tools that are not in `tools`: "namespace, web_search"
};

// Messages of the input, behind what the instructions say.
Json response_messages(Json input, const Json& instructions);
// {"format": {"type", "name", "schema" ...}}, as a chat has it.
void read_response_text(wire::Fields& fields, ResponseAsked& asked, Json& to);
// Functions, their choice, and whether there is to be a thought. Leaves out tools that OpenAI's
// server would run or explain to the model; throws Error(kInput) where the choice names one.
void read_response_tools(wire::Fields& fields, ResponseAsked& asked, Json& to);

}  // namespace split::serve
