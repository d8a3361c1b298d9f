#include "serve/completions.h"

#include "serve/text_answer.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxPrompts = 64;

TextRequest read_request(Fields& fields, const TextModel& model, MemoryShare& memory) {
  TextRequest request;
  GenerateOptions& options = request.options;
  const bool special = fields.boolean_or("special", true);
  const bool given = fields.has("prompt");
  request.prompts = given
                        ? read_prompts(fields.raw("prompt"), "prompt", model, special, kMaxPrompts)
                        : read_prompts("", "prompt", model, special, 1);
  options.max_tokens = static_cast<int>(fields.integer_or("max_tokens", 0, kMaxTokensAsked, 16));
  read_common(fields, request);
  options.logprobs = static_cast<int>(fields.integer_or("logprobs", 0, kMaxLogprobs, -1));
  request.echo = fields.boolean_or("echo", false);
  options.score_prompt = request.echo && options.logprobs >= 0;
  // As many are made as are returned.
  fields.integer_or("best_of", request.choices, request.choices, request.choices);
  if (!fields.text_or("suffix", "").empty()) Fields::refuse("suffix", "is not supported");
  fields.finish();
  check_cost(request, *model.config, memory);
  return request;
}

}  // namespace

http::Response completions(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get());
  TextModel model = find(fields.text_or("model", ""));
  TextRequest parsed = read_request(fields, model, *request.memory);
  return text_answer(request, std::move(model), std::move(parsed), kCompletionShape);
}

std::vector<http::RequestField> completion_fields() {
  std::vector<http::RequestField> fields = {
      {"model", "string", "of GET /v1/models; without it the first"},

      {"prompt", "", "a text, a list of texts, a list of ids, or a list of lists of ids"},
      {"max_tokens", "integer", "16 unless given"},
      {"logprobs", "integer", "of the likeliest tokens at each position"},
      {"echo", "boolean", "the prompt too"},
      {"special", "boolean", "special tokens in a prompt's text are read as such"}};
  const std::vector<http::RequestField> common = common_fields();
  fields.insert(fields.end(), common.begin(), common.end());
  return fields;
}

}  // namespace split::serve
