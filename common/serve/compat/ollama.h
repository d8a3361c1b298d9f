// Ollama's routes for its clients: /api/version, tags, ps, show, generate, chat and embed. Converts
// each text to a request of OpenAI's routes; errors are {"error":"one line"}.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "http/route.h"
#include "models/model.h"

namespace split::serve {

struct OllamaModel {
  std::string id;
  uint64_t bytes = 0;                         // bytes of weights,
  uint64_t bytes_here = 0, bytes_on_gpu = 0;  // parts of them on this machine
  std::string digest;                         // sha256, in hex
  std::string family, quantization;
  ModelConfig config = {};
  uint64_t parameters = 0;
  std::string chat_template;  // makes a prompt a chat's message; empty: no template
};

struct OllamaParts {
  std::string version;
  std::function<std::vector<OllamaModel>()> models;  // one at least
  http::Handler completions, chat, embeddings;       // OpenAI's routes
  bool any_model = false;                            // answers for any name by the first model
};

std::vector<http::Route> ollama_routes(OllamaParts parts);

}  // namespace split::serve
