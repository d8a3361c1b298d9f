// Converts the body of POST /v1/responses to a chat's: items to messages, and flat tools.
#pragma once

#include "wire/fields.h"

namespace split::serve {

// Fields of the request that the answer repeats.
struct ResponseAsked {
  Json instructions, max_output_tokens, temperature, top_p;
  Json format = {{"type", "text"}};
  Json tools = Json::array(), choice = "none", effort;
  bool parallel = false;
  std::string left_out;  // types of dropped tools: "namespace, web_search"
};

// Returns the input's messages, behind the instructions.
Json response_messages(Json input, const Json& instructions);
// Converts {"format": {"type", "name", "schema" ...}} to a chat's form.
void read_response_text(wire::Fields& fields, ResponseAsked& asked, Json& to);
// Reads functions, their choice, and whether to think. Leaves out tools that OpenAI's server would
// run or explain to the model; throws Error(kInput) if the choice names one.
void read_response_tools(wire::Fields& fields, ResponseAsked& asked, Json& to);

}  // namespace split::serve
