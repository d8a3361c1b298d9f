// POST /tokenize and POST /detokenize, as llama-server answers them. Once for both programs.
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// With POST /apply-template, which makes a chat's prompt. `statuses`: of every route that finds a
// model there.
std::vector<http::Route> token_routes(const FindModel& find, std::vector<int> statuses);

}  // namespace split::serve
