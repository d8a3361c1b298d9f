#include "serve/compat/props.h"

#include <algorithm>

#include "base/resources/memory_budget.h"
#include "base/revision.h"
#include "serve/text_request.h"

namespace split::serve {
namespace {

// Names the sampling defaults by llama.cpp's names.
Json default_params() {
  const Json nothing = Json::object();
  wire::Fields fields(&nothing);
  TextRequest request;
  MemoryShare memory;
  read_common(fields, request, memory);
  const auto& sampling = request.options.sampling;
  return {{"temperature", double{sampling.temperature}},
          {"top_k", sampling.top_k},
          {"top_p", double{sampling.top_p}},
          {"repeat_penalty", double{sampling.repetition_penalty}},
          {"repeat_last_n", sampling.repeat_last_n},
          {"stop", Json::array()},
          {"stream", request.stream}};
}

http::Response describe(const Props& props, const std::string& version) {
  Json json = {
      {"default_generation_settings", {{"n_ctx", props.context}, {"params", default_params()}}},
      {"total_slots", props.slots},
      {"model_alias", props.model},
      {"model_path", props.model},
      {"n_ctx", props.context},
      {"modalities", {{"vision", false}, {"audio", false}}},
      {"build_info", cat("splitcompute ", version, " (", source_revision(), ")")}};
  if (!props.chat_template.empty()) json["chat_template"] = props.chat_template;
  return http::Response::json(200, json.dump() + "\n");
}

}  // namespace

uint32_t slots_of(const Batcher& batcher) {
  return std::max(1u, batcher.pages().total() / std::max(1u, batcher.pages().per_sequence()));
}

http::Route props_route(std::string version, std::function<Props()> props) {
  return {.method = "GET",
          .path = "/props",
          .summary = "Describes the (first) model and its defaults, as llama-server does.",
          .handler = [version = std::move(version), props = std::move(props)](
                         const http::Request&) { return describe(props(), version); }};
}

}  // namespace split::serve
