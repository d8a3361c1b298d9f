// Partial state without a session: any range of the model from a prompt or a hidden state.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "run/text/texts.h"
#include "serve/models.h"
#include "text/sampler.h"
#include "text/utf8.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

constexpr uint32_t kTopRows = 32;

// The largest logits of rows, best first, in two lists: [[id, logit], ...] for each row, and with
// the tokens' texts and probabilities.
class TopRows {
  struct One {
    int32_t id;
    float logit, p;
  };

 public:
  // Most bytes of "[50256,-12.345678]," and
  // {"id":50256,"text":,"logit":-12.345678,"p":1.2345678e-12} without the text, and of the entry
  // kept before.
  static constexpr size_t kBytes = 24 + 64 + sizeof(One);

  TopRows(const Tokenizer* tokenizer, int top, MemoryShare& memory)
      : tokenizer_(tokenizer), top_(top), memory_(memory) {}

  // `rows`: the number to come.
  void begin(size_t rows) {
    all_.clear();
    all_.reserve(rows * static_cast<size_t>(top_));
  }
  void add(std::span<const float> row) {
    for (const TokenLogprob& one : top_logprobs(row, top_)) {
      all_.push_back({one.id, row[static_cast<size_t>(one.id)], std::exp(one.logprob)});
      text_bytes_ += text_of(one.id).size();
    }
    columns_ = std::min(static_cast<size_t>(top_), row.size());
  }
  void write(std::string& json) const {
    memory_.take(text_bytes_);
    json.reserve(json.size() + all_.size() * kBytes + text_bytes_);
    lists(json, [&](const One& one) {
      json += cat("[", one.id, ",");
      number(json, one.logit);
      json += ']';
    });
    json += "],\"top_tokens\":[";
    lists(json, [&](const One& one) {
      json += cat("{\"id\":", one.id, ",\"text\":", text_of(one.id), ",\"logit\":");
      number(json, one.logit);
      json += ",\"p\":";
      number(json, one.p);
      json += '}';
    });
  }

 private:
  // Writes a list for each row.
  template <typename Write>
  void lists(std::string& json, const Write& write) const {
    for (size_t i = 0; i < all_.size(); ++i) {
      json += i % columns_ > 0 ? "," : i > 0 ? "],[" : "[";
      write(all_[i]);
    }
    if (!all_.empty()) json += ']';
  }
  static void number(std::string& json, float value) {
    std::string text;
    wire::append_floats(text, {&value, 1});  // "[x]"
    json.append(text, 1, text.size() - 2);
  }
  // Returns null for a token without text: no tokenizer, or a spare row of the matrix.
  std::string text_of(int32_t id) const {
    if (tokenizer_ == nullptr || id >= tokenizer_->size()) return "null";
    return json_quote(to_valid_utf8(tokenizer_->token_bytes(id)));
  }

  const Tokenizer* const tokenizer_;
  const int top_;
  MemoryShare& memory_;
  std::vector<One> all_;
  size_t columns_ = 1;  // entries of each row
  uint64_t text_bytes_ = 0;
};

// Runs rows of a sequence of the request's own, and refuses results that are not finite.
void run_rows(const http::Request& http, ServedModel& model, SequenceId sequence,
              const SequenceRows& rows, std::span<float> out, Job& spent) {
  Job job{sequence, rows, out.data(), requester_of(http)};
  model.batcher().run(job);
  spent.queue_ms += job.queue_ms;
  spent.compute_ms += job.compute_ms;
  spent.share_ms += job.share_ms;
  if (!all_finite(out)) refuse_overflow(model, !rows.hidden.empty());
}

std::string tokens_field(const wire::ForwardRequest& request) {
  const SequenceRows& rows = request.received.rows;
  return rows.tokens.empty() ? "" : cat("\"tokens\":", Json(rows.tokens).dump(), ",");
}

// Answers the largest logits of each row: runs long requests in slices, and keeps few logits of
// each row.
http::Response forward_top(Cloud& cloud, const http::Request& http, ServedModel& model,
                           const wire::ForwardRequest& request) {
  Shard& shard = model.batcher().shard();
  const SequenceRows& rows = request.received.rows;
  const size_t wanted = rows.wanted_count(), width = shard.width(rows.range.to);
  const uint32_t slice = wanted > kTopRows ? kTopRows : rows.count();
  const size_t row_bytes = static_cast<size_t>(request.top) * TopRows::kBytes;
  expect_answer(wanted, row_bytes);
  http.memory->take(std::min<size_t>(wanted, slice) * width * sizeof(float) + wanted * row_bytes);
  charge_rows(cloud, http, model, rows);
  const OneSequence sequence(shard.pages());
  TopRows likeliest(model.tokenizer(), request.top, *http.memory);
  likeliest.begin(wanted);
  Job spent;
  std::vector<float> out;
  for (uint32_t at = 0; at < rows.count(); at += slice) {
    const SequenceRows part = rows.slice(at, std::min(slice, rows.count() - at));
    out.resize(part.wanted_count() * width);
    try {
      run_rows(http, model, sequence.id, part, out, spent);
    } catch (const SequenceLost&) {  // lost device: starts over
      sequence.pages.cut_back(sequence.id, 0);
      likeliest.begin(wanted);
      at = 0 - slice;  // wraps to the first
      continue;
    }
    for (size_t row = 0; row < out.size(); row += width) {
      likeliest.add(std::span(out).subspan(row, width));
    }
  }
  std::string json = cat("{", tokens_field(request), "\"shape\":[", wanted, ",", width,
                         "],\"dtype\":\"f32\",\"top\":[");
  likeliest.write(json);
  http::Response response = http::Response::json(200, json + "]}\n");
  describe_run(response, spent);
  return response;
}

// Answers the rows of one or several texts at a point, or their embeddings.
http::Response forward_rows(Cloud& cloud, const http::Request& http, ServedModel& model,
                            const wire::ForwardRequest& request) {
  Batcher& batcher = model.batcher();
  const Sentences& sentences = model.sentences();
  uint32_t one = 0;
  const TextRows texts = request.texts(one);
  const size_t columns = batcher.shard().width(texts.range.to), wanted = texts.wanted_count();
  const size_t rows = request.pool ? texts.lengths.size() : wanted;
  const size_t width = request.pool ? sentences.dimensions() : columns;
  const bool tensors = wants_tensors(http);
  if (request.format != DType::kF32 && !tensors) {
    wire::Fields::refuse("dtype", cat("is for Accept: ", wire::kTensorType));
  }
  const size_t row_bytes = width * (tensors ? sizeof(float) : kJsonBytesAFloat);
  expect_answer(rows, row_bytes);
  http.memory->take(wanted * columns * sizeof(float) + rows * row_bytes);
  charge_rows(cloud, http, model, request.received.rows);
  Job spent;
  std::vector<float> out;
  if (request.lengths.empty() && !request.pool && request.format == DType::kF32) {
    const OneSequence sequence(batcher.shard().pages());
    out.resize(wanted * columns);
    run_rows(http, model, sequence.id, request.received.rows, out, spent);
  } else {
    Forward::Spent took;
    out = run_texts(batcher, texts, requester_of(http), took);
    spent.queue_ms = took.queue_ms;
    spent.compute_ms = took.compute_ms;
    if (!all_finite(out)) refuse_overflow(model, !texts.hidden.empty());
  }
  std::vector<uint32_t> lengths;
  for (const uint32_t length : request.lengths) {
    lengths.push_back(static_cast<uint32_t>(texts.wanted.count(length)));
  }
  if (request.pool) {
    lengths.clear();
    std::vector<float> pooled;
    pooled.reserve(rows * width);
    pool_texts(sentences, texts.lengths, out, columns,
               request.normalize.value_or(sentences.normalizes()), pooled);
    out = std::move(pooled);
  }
  if (request.format == DType::kF16) expect_halves(out);
  const std::string_view name = request.pool ? wire::kEmbedding : wire::result_name(texts.range.to);
  http::Response response;
  if (tensors) {
    response.content_type = wire::kTensorType;
    response.body = wire::frame(name, static_cast<uint32_t>(rows), static_cast<uint32_t>(width),
                                out, {.lengths = lengths, .format = request.format});
  } else {
    const std::string fields = !lengths.empty() ? cat("\"lengths\":", Json(lengths).dump(), ",")
                               : request.pool   ? ""
                                                : tokens_field(request);
    response = rows_in_json(fields, name, rows, width, out);
  }
  describe_run(response, spent);
  return response;
}

http::Response forward(Cloud& cloud, const http::Request& http) {
  ServedModel& model = cloud.find(http.path_params[0]);
  const ModelConfig& config = model.config();
  const auto encode = [&](const std::string& prompt, bool special) {
    MemoryShare* const memory = http.memory.get();
    if (!model.sentences().meant()) {
      return prompt_ids(config, model.tokenizer(), prompt, special, memory);
    }
    return model.sentences().encode(model.tokenizer(), prompt, false, memory).ids;
  };
  if (!sends_tensors(http))
    cloud.expect_no_drain();  // hidden states belong to a text that runs
                              // already
  take_hidden(http);
  const wire::ForwardRequest request =
      sends_tensors(http) ? wire::parse_forward(http.query_params, as_bytes_of(http.body), config)
                          : wire::parse_forward(http.body, config, encode, http.memory.get());
  if (request.received.rows.range.to > model.last_point()) serve::refuse_without_head();
  return request.top > 0 && request.format == DType::kF32
             ? forward_top(cloud, http, model, request)
             : forward_rows(cloud, http, model, request);
}

}  // namespace

Routes forward_routes(Cloud& cloud) {
  return {
      {.method = "POST",
       .path = "/v1/models/{id}/forward",
       .summary = "Computes any range of a model, without a session.",
       .statuses = {200, 404},
       .query = {{"from", "integer",
                  "The point that hidden states enter at, where the body is safetensors."},
                 {"to", "string", "As in a JSON body, where the body is safetensors."},
                 {"rows", "string", "As in a JSON body, where the body is safetensors."},
                 {"top", "integer", "As in a JSON body, where the body is safetensors."},
                 {"normalize", "boolean", "As in a JSON body, where the body is safetensors."},
                 {"dtype", "string", "As in a JSON body, where the body is safetensors."}},
       .body =
           {{"prompt", "", "The text to compute, or a list of texts; give it or tokens."},
            {"tokens", "array",
             "The token ids to compute, or a list of lists; give them or a prompt."},
            {"seconds", "array",
             "Beside a list of lists of ids that are pairs of texts: the row at which the second "
             "of "
             "each begins, or 0."},
            {"special", "boolean",
             "Whether special tokens in the prompt's text are read as tokens (true) or as text."},
            {"from", "integer", "Only 0 with tokens; hidden states are sent as safetensors."},
            {"to", "",
             "The point to stop at: a block's number 0..L, norm or head; pool: one embedding of "
             "each text."},
            {"normalize", "boolean", "Scales embeddings to unit length; else as the model does."},
            {"dtype", "string",
             "f32, or f16 for half as many bytes of an answer in safetensors; hidden states also "
             "q8_0, in little more than a quarter."},
            {"rows", "", "The rows to return: all, last or a list of row numbers."},
            {"top", "integer",
             "Returns only the N likeliest tokens of each row of logits: top has [id, logit], "
             "top_tokens their texts and probabilities too."}},
       .other_body_types = {wire::kTensorType},
       .handler = std::bind_front(forward, std::ref(cloud))}};
}

}  // namespace split::cloud
