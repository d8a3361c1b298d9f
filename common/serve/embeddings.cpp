#include "serve/embeddings.h"

#include <cmath>

#include "base/base64.h"
#include "base/json.h"
#include "serve/text_answer.h"
#include "serve/watch.h"
#include "wire/protocol.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxInputs = 2048;  // OpenAI's bounds of one request
constexpr size_t kMaxTokens = 300'000;

struct EmbeddingsRequest {
  std::vector<std::vector<int32_t>> inputs;
  bool base64 = false;
  bool normalize = true;
};

EmbeddingsRequest read_request(Fields& fields, const TextModel& model) {
  EmbeddingsRequest request;
  const auto& input = fields.raw("input");
  if (input == "") Fields::refuse("input", "expected text that is not empty");
  request.inputs = read_prompts(input, "input", model, true, kMaxInputs);
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
  request.normalize = fields.boolean_or("normalize", true);
  const int channels = model.config->channels;
  fields.integer_or("dimensions", channels, channels, channels);
  fields.ignore("user");
  fields.finish();
  return request;
}

void to_unit_length(std::span<float> values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * double{x};
  if (sum == 0) return;
  for (float& x : values) x = static_cast<float>(x / std::sqrt(sum));
}

// Little-endian f32, as OpenAI sends them.
std::string base64_of(std::span<const float> values) {
  std::string text = "\"";
  Base64 base64(text);
  base64.add(std::as_bytes(values));
  base64.finish();
  return text + '"';
}

}  // namespace

std::vector<float> mean_row(std::span<const float> rows, size_t channels) {
  std::vector<float> mean(channels);
  const size_t count = rows.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t at = c; at < rows.size(); at += channels) sum += rows[at];
    mean[c] = static_cast<float>(sum / static_cast<double>(count));
  }
  return mean;
}

http::Response embeddings(const http::Request& http, const FindModel& find) {
  Fields fields(http.body, http.memory.get());
  const TextModel model = find(fields.text_or("model", ""));
  const EmbeddingsRequest request = read_request(fields, model);
  const std::unique_ptr<TextBackend> work = model.begin();
  const Watch watch(http.client_gone, [&] { work->cancel(); });
  std::string data;
  size_t tokens = 0;
  for (size_t i = 0; i < request.inputs.size() && !watch.gone(); ++i) {
    std::vector<float> mean =
        mean_row(work->states(request.inputs[i]), static_cast<size_t>(model.config->channels));
    if (request.normalize) to_unit_length(mean);
    data += cat(i > 0 ? "," : "", "{\"object\":\"embedding\",\"index\":", i, ",\"embedding\":");
    if (request.base64) {
      data += base64_of(mean);
    } else {
      wire::append_floats(data, mean);
    }
    data += "}";
    tokens += request.inputs[i].size();
  }
  http::Response response = http::Response::json(
      200, cat("{\"object\":\"list\",\"data\":[", data, "],\"model\":", json_quote(model.id),
               ",\"usage\":", usage_of(*work, tokens, std::nullopt).dump(), "}\n"));
  const std::string timing = work->server_timing();
  if (!timing.empty()) response.headers.set("Server-Timing", timing);
  return response;
}

std::vector<http::RequestField> embedding_fields() {
  return {{"model", "string", "A model's id (GET /v1/models); the first one by default."},

          {"input", "", "a text, a list of texts, a list of ids, or a list of lists of ids", true},
          {"encoding_format", "string", "float or base64."},
          {"dimensions", "integer", "The length of an embedding; only the model's own."},
          {"normalize", "boolean",
           "Scales embeddings to unit length, as OpenAI's clients expect; true by default."}};
}

}  // namespace split::serve
