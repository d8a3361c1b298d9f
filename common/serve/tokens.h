// POST /tokenize and POST /detokenize in llama-server's shape. Once for both programs.
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

// Adds POST /apply-template, which makes a chat's prompt. `statuses`: those of each route that
// finds a model.
std::vector<http::Route> token_routes(const FindModel& find, std::vector<int> statuses);

}  // namespace split::serve
