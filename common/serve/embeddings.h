// POST /v1/embeddings in OpenAI's shape: the mean of a text's final states, of length 1.
#pragma once

#include "http/route.h"
#include "serve/text_backend.h"

namespace split::serve {

http::Response embeddings(const http::Request& request, const FindModel& find);

// Returns the mean over the rows of [rows, C].
std::vector<float> mean_row(std::span<const float> rows, size_t channels);

// The members of its body, for /openapi.json.
std::vector<http::RequestField> embedding_fields();

}  // namespace split::serve
