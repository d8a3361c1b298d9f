// GET /props in llama-server's shape, its clients' first request. Once for both programs.
#pragma once

#include <functional>
#include <string>

#include "http/route.h"
#include "models/model.h"
#include "run/batcher.h"

namespace split::serve {

// The facts of a server.
struct Props {
  std::string model;
  int context = 0;            // positions of a text
  uint32_t slots = 1;         // whole contexts that fit at once
  std::string chat_template;  // empty: unknown
};

// Number of texts of full length whose keys and values fit.
uint32_t slots_of(const Batcher& batcher);

http::Route props_route(std::string version, std::function<Props()> props);

}  // namespace split::serve
