// Ollama's routes for its clients: /api/version, tags, ps, show, generate, chat and embed. Texts
// come from OpenAI's routes, which these ask with other words; errors are {"error":"one line"}.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "http/route.h"
#include "models/model.h"

namespace split::serve {

struct OllamaModel {
  std::string id;
  uint64_t bytes = 0;                         // of its weights,
  uint64_t bytes_here = 0, bytes_on_gpu = 0;  // and of those on this machine
  std::string digest;                         // sha256, in hex
  std::string family, quantization;
  ModelConfig config = {};
  uint64_t parameters = 0;
  std::string chat_template;  // by which a prompt is a chat's message; empty: there is none
};

struct OllamaParts {
  std::string version;
  std::function<std::vector<OllamaModel>()> models;  // one at least
  http::Handler completions, chat, embeddings;       // as OpenAI has them
  bool any_model = false;                            // the first answers for any name
};

std::vector<http::Route> ollama_routes(OllamaParts parts);

}  // namespace split::serve
