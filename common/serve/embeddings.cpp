#include "serve/embeddings.h"

#include <cmath>

#include "base/base64.h"
#include "base/json.h"
#include "serve/text_answer.h"
#include "serve/watch.h"
#include "wire/codes.h"
#include "wire/protocol.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxInputs = 2048;  // OpenAI's bound of a request
constexpr size_t kMaxTokens = 300'000;

struct EmbeddingsRequest {
  std::vector<std::vector<int32_t>> inputs;
  size_t truncated = 0;  // inputs
  bool base64 = false, normalize = true, truncate = false;
  std::optional<std::string> prompt;  // its name
  size_t dimensions = 0;
};

// Returns the ids of a text, or checks given ids.
std::vector<int32_t> sentence_ids(const Json& input, const TextModel& model,
                                  EmbeddingsRequest& request, MemoryShare& memory) {
  const Sentences& sentences = *model.sentences;
  SentenceIds made;
  if (input.is_string()) {
    const std::string& prompt = sentences.prompt(request.prompt);
    memory.take(prompt.size() + input.text().size());
    made = sentences.encode(model.tokenizer, prompt + input.text(), request.truncate, &memory);
  } else {
    std::vector<int32_t> ids =
        Fields::integers_of(input, "input", 0, model.config->vocab - 1, kMaxTokens);
    if (ids.empty()) Fields::refuse("input", "expected at least one token id");
    made = sentences.bounded(std::move(ids), request.truncate);
  }
  request.truncated += made.truncated ? 1 : 0;
  return std::move(made.ids);
}

void read_sentences(const Json& input, const TextModel& model, EmbeddingsRequest& request,
                    MemoryShare& memory) {
  try {
    if (input.is_string() || (input.is_array() && !input.empty() && input[0].is_number())) {
      request.inputs.push_back(sentence_ids(input, model, request, memory));
      return;
    }
    if (!input.is_array() || input.empty() || input.size() > kMaxInputs) {
      Fields::refuse("input", cat("expected a text, a list of ids, or a list of at most ",
                                  kMaxInputs, " of these"));
    }
    for (const Json& one : input)
      request.inputs.push_back(sentence_ids(one, model, request, memory));
  } catch (const InputTooLong& error) {
    throw http::HttpError(400, "input_too_long", error.what(), "input");
  }
}

EmbeddingsRequest read_embeddings_request(Fields& fields, const TextModel& model,
                                          MemoryShare& memory) {
  if (model.sentences == nullptr) {
    throw http::HttpError(501, wire::codes::kNotSupported, "this server has no embeddings");
  }
  const Sentences& sentences = *model.sentences;
  if (sentences.ranks()) {
    throw http::HttpError(400, "no_pool",
                          cat("the model ", shown(model.id), " scores pairs and makes no ",
                              "embeddings: expected POST /v1/rerank"),
                          "model");
  }
  EmbeddingsRequest request;
  const auto& input = fields.raw("input");
  if (input == "") Fields::refuse("input", "expected text that is not empty");
  request.truncate = fields.boolean_or("truncate", false);
  if (fields.has("prompt_name")) {
    request.prompt = fields.text("prompt_name");
    sentences.prompt(request.prompt);
  }
  if (sentences.meant()) {
    read_sentences(input, model, request, memory);
  } else {
    request.inputs = read_prompts(input, "input", model, true, kMaxInputs, memory);
  }
  size_t tokens = 0;
  for (const auto& ids : request.inputs) tokens += ids.size();
  if (tokens > kMaxTokens) {
    Fields::refuse("input", cat("expected at most ", kMaxTokens, " tokens, got ", tokens));
  }
  const std::string encoding = fields.text_or("encoding_format", "float");
  if (encoding != "float" && encoding != "base64") {
    Fields::refuse("encoding_format", "expected \"float\" or \"base64\"");
  }
  request.base64 = encoding == "base64";
  request.normalize = fields.boolean_or("normalize", sentences.normalizes());
  const auto all = static_cast<int64_t>(sentences.dimensions());
  request.dimensions = static_cast<size_t>(fields.integer_or("dimensions", 1, all, all));
  fields.ignore("user");
  fields.finish();
  return request;
}

// Writes little-endian f32 in base64, like OpenAI.
std::string base64_of(std::span<const float> values) {
  std::string text = "\"";
  Base64 base64(text);
  base64.add(std::as_bytes(values));
  base64.finish();
  return text + '"';
}

}  // namespace

http::Response embeddings(const http::Request& http, const FindModel& find) {
  Fields fields(http.body, http.memory.get());
  const TextModel model = find(fields.text_or("model", ""));
  const EmbeddingsRequest request = read_embeddings_request(fields, model, *http.memory);
  const std::unique_ptr<TextBackend> work = model.begin();
  const Watch watch(http.client_gone, [&] { work->cancel(); });
  std::string data;
  size_t tokens = 0;
  const TextBackend::Embedded embedded = work->embed(request.inputs, {}, *model.sentences);
  const size_t width = model.sentences->dimensions();
  for (size_t i = 0; i < request.inputs.size() && !watch.gone(); ++i) {
    const auto whole = std::span(embedded.values).subspan(i * width, request.dimensions);
    std::vector<float> embedding(whole.begin(), whole.end());
    if (request.normalize) to_unit_length(embedding);
    data += cat(i > 0 ? "," : "", "{\"object\":\"embedding\",\"index\":", i, ",\"embedding\":");
    if (request.base64) {
      data += base64_of(embedding);
    } else {
      wire::append_floats(data, embedding);
    }
    data += "}";
    tokens += request.inputs[i].size();
  }
  Json usage = read_usage_of(*work, tokens);
  if (!usage.contains("splitcompute")) usage["splitcompute"] = Json::object();
  usage["splitcompute"]["texts"] = request.inputs.size();
  usage["splitcompute"]["trips"] = embedded.trips;
  if (request.truncate) usage["splitcompute"]["truncated"] = request.truncated;
  http::Response response = http::Response::json(
      200, cat("{\"object\":\"list\",\"data\":[", data, "],\"model\":", json_quote(model.id),
               ",\"usage\":", usage.dump(), "}\n"));
  const std::string timing = work->server_timing();
  if (!timing.empty()) response.headers.set("Server-Timing", timing);
  return response;
}

std::vector<http::RequestField> embedding_fields() {
  return {
      {"model", "string", "A model's id (GET /v1/models); the first one by default."},
      {"input", "", "a text, a list of texts, a list of ids, or a list of lists of ids", true},
      {"encoding_format", "string", "float or base64."},
      {"dimensions", "integer",
       "Keeps the first so many numbers of an embedding, before it is scaled."},
      {"normalize", "boolean",
       "Scales embeddings to unit length; by default where the model's modules.json says so, or "
       "has none."},
      {"prompt_name", "string", "The model's prompt to put before each text: query ..."},
      {"truncate", "boolean",
       "Cuts what is longer than the model takes, its closing token kept; else 400."}};
}

}  // namespace split::serve
