// POST /v1/completions in OpenAI's shape, once for both programs: the cloud runs the whole model,
// the edge its pair. Knows a Forward, not where it runs.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "http/message.h"
#include "run/generate.h"

namespace split::serve {

// What a completion runs on. Everything outlives the answers, streams included.
struct CompletionModel {
  std::string id;
  const ModelConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;            // null: ids only
  std::function<std::unique_ptr<Forward>()> open;  // one sequence
};

// Finds a model by id; "" asks for the only or first one. Throws HttpError 404 `model_not_found`.
using FindModel = std::function<CompletionModel(const std::string& id)>;

// Answers the request: JSON, or events when it says "stream". Throws Error(kInput) for a body that
// is wrong.
http::Response completions(const http::Request& request, const FindModel& find);

}  // namespace split::serve
