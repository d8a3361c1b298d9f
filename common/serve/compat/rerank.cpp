#include "serve/compat/rerank.h"

#include <algorithm>
#include <numeric>

#include "base/json.h"
#include "base/sort.h"
#include "serve/text_answer.h"
#include "serve/watch.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxDocuments = 1000;

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  size_t top = 0;
  bool with_documents = false, truncate = true;
};

std::string document_of(const Json& document) {
  const Json* const text = document.is_object() ? document.find("text") : &document;
  if (text == nullptr || !text->is_string()) {
    Fields::refuse("documents", "expected each to be a string or an object with a \"text\"");
  }
  return text->text();
}

RerankRequest read_rerank_request(Fields& fields, MemoryShare& memory) {
  RerankRequest request;
  request.query = fields.text("query");
  const Json& documents = fields.raw("documents");
  if (!documents.is_array() || documents.empty() || documents.size() > kMaxDocuments) {
    Fields::refuse("documents", cat("expected a list of 1 to ", kMaxDocuments));
  }
  for (const Json& document : documents) {
    request.documents.push_back(document_of(document));
    memory.take(request.documents.back().size());
  }
  const auto all = static_cast<int64_t>(request.documents.size());
  request.top = static_cast<size_t>(std::min(fields.integer_or("top_n", 1, INT32_MAX, all), all));
  request.with_documents = fields.boolean_or("return_documents", false);
  request.truncate = fields.boolean_or("truncate", true);
  for (const char* unused : {"max_chunks_per_doc", "max_tokens_per_doc", "user"}) {
    fields.ignore(unused);
  }
  fields.finish();
  return request;
}

}  // namespace

RankedPairs::RankedPairs(const Sentences& sentences, const Tokenizer& tokenizer,
                         std::string_view query, MemoryShare* memory)
    : sentences_(sentences),
      tokenizer_(tokenizer),
      memory_(memory),
      query_(tokenizer.encode(query, {.memory = memory})) {}

void RankedPairs::add(std::string_view document, bool truncate) {
  const auto own = tokenizer_.encode(document, {.memory = memory_});
  SentenceIds pair = sentences_.pair(tokenizer_, query_, own, truncate);
  if (memory_ != nullptr) memory_->take(pair.ids.size() * sizeof(int32_t));
  tokens += pair.ids.size();
  truncated += pair.truncated ? 1 : 0;
  seconds_.push_back(pair.second);
  ids.push_back(std::move(pair.ids));
}

std::span<const uint32_t> RankedPairs::seconds() const {
  if (std::ranges::all_of(seconds_, [](uint32_t row) { return row == 0; })) return {};
  return seconds_;
}

std::vector<size_t> by_score(std::span<const float> scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  sort_stably(order, std::greater(), [&](size_t i) { return scores[i]; });
  return order;
}

http::Response rerank(const http::Request& http, const FindModel& find) {
  Fields fields(http.body, http.memory.get());
  const TextModel model = find(fields.text_or("model", ""));
  if (model.sentences == nullptr || !model.sentences->ranks()) {
    throw http::HttpError(
        400, "no_rank",
        cat("the model ", shown(model.id), " has no classifier of pairs: ", "expected a reranker"),
        "model");
  }
  if (model.tokenizer == nullptr) {
    throw http::HttpError(501, wire::codes::kNotSupported, "the model has no tokenizer");
  }
  const RerankRequest request = read_rerank_request(fields, *http.memory);
  RankedPairs pairs(*model.sentences, *model.tokenizer, request.query, http.memory.get());
  for (size_t i = 0; i < request.documents.size(); ++i) {
    try {
      pairs.add(request.documents[i], request.truncate);
    } catch (const InputTooLong& error) {
      throw http::HttpError(400, "input_too_long", cat("document ", i, ": ", error.what()),
                            cat("documents[", i, "]"));
    }
  }
  const std::unique_ptr<TextBackend> work = model.begin();
  const Watch watch(http.client_gone, [&] { work->cancel(); });
  const TextBackend::Embedded scored = work->embed(pairs.ids, pairs.seconds(), *model.sentences);
  Json results = Json::array();
  for (const size_t i : by_score(scored.values)) {
    if (results.size() == request.top) break;
    Json result = {{"index", i}, {"relevance_score", scored.values[i]}};
    if (request.with_documents) result["document"] = Json{{"text", request.documents[i]}};
    results.push_back(std::move(result));
  }
  Json usage = read_usage_of(*work, pairs.tokens);
  if (!usage.contains("splitcompute")) usage["splitcompute"] = Json::object();
  usage["splitcompute"]["texts"] = pairs.ids.size();
  usage["splitcompute"]["trips"] = scored.trips;
  usage["splitcompute"]["truncated"] = pairs.truncated;
  Json answer = {{"object", "list"}, {"model", model.id}};
  answer["results"] = std::move(results);
  answer["usage"] = std::move(usage);
  answer["meta"] = {{"api_version", {{"version", "1"}}}};  // some of Cohere's clients want one
  http::Response response = http::Response::json(200, answer.dump() + "\n");
  const std::string timing = work->server_timing();
  if (!timing.empty()) response.headers.set("Server-Timing", timing);
  return response;
}

std::vector<http::RequestField> rerank_fields() {
  return {{"model", "string", "A model's id (GET /v1/models); the first one by default."},
          {"query", "string", "What the documents are ranked by.", true},
          {"documents", "array", "At most 1,000 texts, or objects with a text.", true},
          {"top_n", "integer", "Returns only so many of the best."},
          {"return_documents", "boolean", "Whether each result has its document's text."},
          {"truncate", "boolean",
           "Cuts a pair that is longer than the model takes, its longer text first (true); else "
           "400."}};
}

}  // namespace split::serve
