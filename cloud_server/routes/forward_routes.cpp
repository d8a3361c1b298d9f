// Partial state without a session: any range of the model from a prompt or a hidden state; and
// whole completions.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/json.h"
#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "run/text/generate.h"
#include "run/text/texts.h"
#include "serve/chat.h"
#include "serve/completions.h"
#include "serve/embeddings.h"
#include "serve/models.h"
#include "serve/tokens.h"
#include "text/sampler.h"
#include "text/utf8.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

constexpr uint32_t kTopRows = 32;

// The largest logits of rows, best first, in two lists: [[id, logit], ...] of each row, and the
// same with the tokens' texts and probabilities.
class TopRows {
  struct One {
    int32_t id;
    float logit, p;
  };

 public:
  // "[50256,-12.345678]," and {"id":50256,"text":,"logit":-12.345678,"p":1.2345678e-12}, at most,
  // but for a text; and what is kept of it before.
  static constexpr size_t kBytes = 24 + 64 + sizeof(One);

  TopRows(const Tokenizer* tokenizer, int top, MemoryShare& memory)
      : tokenizer_(tokenizer), top_(top), memory_(memory) {}

  // `rows`: how many come.
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
  // A list of each row.
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
  // Null for a token without text: those of a model without a tokenizer, and a matrix's spare rows.
  std::string text_of(int32_t id) const {
    if (tokenizer_ == nullptr || id >= tokenizer_->size()) return "null";
    return json_quote(to_valid_utf8(tokenizer_->token_bytes(id)));
  }

  const Tokenizer* const tokenizer_;
  const int top_;
  MemoryShare& memory_;
  std::vector<One> all_;
  size_t columns_ = 1;  // of each row
  uint64_t text_bytes_ = 0;
};

// An answer in JSON up to its rows.
std::string json_head(const wire::ForwardRequest& request, size_t rows, size_t width) {
  const SequenceRows& asked = request.received.rows;
  const std::string tokens =
      asked.tokens.empty() ? "" : cat("\"tokens\":", Json(asked.tokens).dump(), ",");
  return cat("{", tokens, "\"shape\":[", rows, ",", width, "],\"dtype\":\"f32\",\"",
             request.top > 0 ? "top" : wire::result_name(asked.range.to), "\":[");
}

// The rows of an answer to `forward`, run some at a time where few logits of each are kept.
class ForwardRun {
 public:
  ForwardRun(Cloud& cloud, const http::Request& http, ServedModel& model, const SequenceRows& rows)
      : http_(http), model_(model), rows_(rows) {
    charge_rows(cloud, http, model, rows);
  }

  // Calls `take` with each wanted row in turn, and `again` where a device was lost and all begins
  // anew.
  void by_rows(uint32_t slice, const std::function<void(std::span<const float>)>& take,
               const std::function<void()>& again) {
    const size_t width = model_.batcher().shard().width(rows_.range.to);
    const OneSequence sequence(model_.batcher().shard().pages());
    std::vector<float> out;
    for (uint32_t at = 0; at < rows_.count(); at += slice) {
      const SequenceRows part = rows_.slice(at, std::min(slice, rows_.count() - at));
      out.resize(part.wanted_count() * width);
      try {
        run(sequence.id, part, out);
      } catch (const SequenceLost&) {
        sequence.pages.cut_back(sequence.id, 0);
        again();
        at = 0 - slice;  // wraps to the first
        continue;
      }
      for (size_t row = 0; row < out.size(); row += width) {
        take(std::span(out).subspan(row, width));
      }
    }
  }

  // All of them at once.
  std::vector<float> whole() {
    const OneSequence sequence(model_.batcher().shard().pages());
    std::vector<float> out(rows_.wanted_count() * model_.batcher().shard().width(rows_.range.to));
    run(sequence.id, rows_, out);
    return out;
  }

  void describe(http::Response& response) const { describe_run(response, spent_); }

 private:
  void run(SequenceId sequence, const SequenceRows& rows, std::span<float> out) {
    Job job{sequence, rows, out.data(), requester_of(http_)};
    model_.batcher().run(job);
    spent_.queue_ms += job.queue_ms;
    spent_.compute_ms += job.compute_ms;
    spent_.share_ms += job.share_ms;
    if (!all_finite(out)) refuse_overflow(model_, !rows.hidden.empty());
  }

  const http::Request& http_;
  ServedModel& model_;
  const SequenceRows& rows_;
  Job spent_;
};

// The rows of whole texts at a point, or their embeddings.
http::Response forward_texts(Cloud& cloud, const http::Request& http, ServedModel& model,
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
  Forward::Spent took;
  std::vector<float> out = run_texts(batcher, texts, requester_of(http), took);
  spent.queue_ms = took.queue_ms;
  spent.compute_ms = took.compute_ms;
  if (!all_finite(out)) refuse_overflow(model, !texts.hidden.empty());
  std::vector<uint32_t> lengths;
  for (const uint32_t length : request.lengths) {
    lengths.push_back(static_cast<uint32_t>(texts.wanted.count(length)));
  }
  if (request.pool) {
    lengths.clear();
    std::vector<float> pooled;
    pooled.reserve(rows * width);
    size_t at = 0;
    for (const uint32_t length : texts.lengths) {
      const auto embedding = sentences.pool(std::span(out).subspan(at, length * columns),
                                            request.normalize.value_or(sentences.normalizes()));
      pooled.insert(pooled.end(), embedding.begin(), embedding.end());
      at += length * columns;
    }
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
    std::string json =
        cat("{", lengths.empty() ? "" : cat("\"lengths\":", Json(lengths).dump(), ","),
            "\"shape\":[", rows, ",", width, "],\"dtype\":\"f32\",\"", name, "\":[");
    json.reserve(json.size() + rows * row_bytes);
    for (size_t row = 0; row < rows; ++row) {
      if (row > 0) json += ',';
      wire::append_floats(json, std::span(out).subspan(row * width, width));
    }
    json += "]}\n";
    response = http::Response::json(200, std::move(json));
  }
  describe_run(response, spent);
  return response;
}

http::Response forward(Cloud& cloud, const http::Request& http) {
  ServedModel& model = cloud.find(http.path_params[0]);
  const ModelConfig& config = model.config();
  Shard& shard = model.batcher().shard();
  const auto encode = [&](const std::string& prompt, bool special) {
    MemoryShare* const memory = http.memory.get();
    if (!model.sentences().meant()) {
      return prompt_ids(config, model.tokenizer(), prompt, special, memory);
    }
    return model.sentences().encode(model.tokenizer(), prompt, false, memory).ids;
  };
  take_hidden(http);
  const wire::ForwardRequest request =
      sends_tensors(http) ? wire::parse_forward(http.query_params, as_bytes_of(http.body), config)
                          : wire::parse_forward(http.body, config, encode, http.memory.get());
  const SequenceRows& rows = request.received.rows;
  if (rows.range.to > model.last_point()) serve::refuse_without_head();
  if (!request.lengths.empty() || request.pool || request.format != DType::kF32) {
    return forward_texts(cloud, http, model, request);
  }
  const size_t wanted = rows.wanted_count(), width = shard.width(rows.range.to);
  const bool tensors = wants_tensors(http);
  // Rows whose logits are held at once, where few of each are kept.
  const uint32_t slice = request.top > 0 && wanted > kTopRows ? kTopRows : rows.count();
  const size_t held = std::min<size_t>(wanted, slice);
  // At most 2^20 rows of 2^24 columns: nothing here overflows.
  const auto top = static_cast<size_t>(request.top);
  const size_t row_bytes = top > 0   ? top * TopRows::kBytes
                           : tensors ? width * sizeof(float)
                                     : width * kJsonBytesAFloat;
  expect_answer(wanted, row_bytes);
  http.memory->take(held * width * sizeof(float) + wanted * row_bytes);
  ForwardRun run(cloud, http, model, rows);
  http::Response response;
  if (tensors && request.top == 0) {
    response.content_type = wire::kTensorType;
    response.body = wire::frame(wire::result_name(rows.range.to), static_cast<uint32_t>(wanted),
                                static_cast<uint32_t>(width), run.whole());
  } else {
    const std::string head = json_head(request, wanted, width);
    std::string json = head;
    TopRows likeliest(model.tokenizer(), request.top, *http.memory);
    const auto begin = [&] {
      json = head;
      if (request.top > 0) return likeliest.begin(wanted);
      json.reserve(head.size() + wanted * row_bytes);
    };
    begin();
    run.by_rows(
        slice,
        [&](std::span<const float> row) {
          if (request.top > 0) return likeliest.add(row);
          if (json.size() > head.size()) json += ',';
          wire::append_floats(json, row);
        },
        begin);
    if (request.top > 0) likeliest.write(json);
    json += "]}\n";
    response = http::Response::json(200, std::move(json));
  }
  run.describe(response);
  return response;
}

// The rows of a completion are its key's, and finite.
class CountedForward : public LocalForward {
 public:
  CountedForward(ServedModel& model, const serve::ApiKeys& keys, const Requester& requester)
      : LocalForward(model.batcher(), requester),
        model_(model),
        keys_(keys),
        name_(requester.owner) {}
  std::span<const float> run(const SequenceRows& rows) override {
    keys_.took_rows(name_, model_.batcher().shard().whole_rows(rows));
    return checked(LocalForward::run(rows));
  }

 private:
  std::span<const float> checked(std::span<const float> logits) const {
    if (!all_finite(logits)) refuse_overflow(model_, false);
    return logits;
  }

  ServedModel& model_;
  const serve::ApiKeys& keys_;
  const std::string name_;
};

// A model that texts of this request run on.
serve::TextModel writer(Cloud& cloud, const http::Request& request, const std::string& id) {
  ServedModel& model = cloud.find(id);
  if (model.config().encodes()) serve::refuse_without_head();
  serve::TextModel work = serve::local_backend(
      model.id(), model.config(), model.tokenizer(),
      [&cloud, &model, requester = requester_of(request)](size_t) {
        return std::make_unique<CountedForward>(model, cloud.keys, requester);
      },
      model.device().name());
  work.spare = &cloud.spare;
  work.chat = model.chat();
  work.special_in_content = model.special_in_content();
  return work;
}

http::Response completions(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  return serve::completions(request,
                            [&](const std::string& id) { return writer(cloud, request, id); });
}

http::Response chat_completions(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  return serve::chat_completions(request,
                                 [&](const std::string& id) { return writer(cloud, request, id); });
}

// A model to read texts and tokens by; nothing runs on it.
serve::TextModel reader(Cloud& cloud, const std::string& id) {
  ServedModel& model = cloud.find(id);
  serve::TextModel text;
  text.id = model.id();
  text.config = &model.config();
  text.tokenizer = model.tokenizer();
  text.chat = model.chat();
  text.special_in_content = model.special_in_content();
  return text;
}

// Texts on this machine's batcher, in as few steps as they fit.
class EmbeddingWork : public serve::TextBackend {
 public:
  EmbeddingWork(Cloud& cloud, ServedModel& model, const http::Request& request)
      : cloud_(cloud), model_(model), request_(request) {}
  std::unique_ptr<serve::Text> begin(std::span<const int32_t>, const GenerateOptions&) override {
    serve::refuse_without_head();
  }
  Embedded embed(Texts texts, const Sentences& sentences) override {
    std::vector<int32_t> tokens;
    std::vector<uint32_t> lengths;
    for (const auto& ids : texts) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      lengths.push_back(static_cast<uint32_t>(ids.size()));
    }
    const TextRows rows{.range = {.to = sentences.point()}, .lengths = lengths, .tokens = tokens};
    charge_rows(cloud_, request_, model_, {.range = rows.range, .tokens = tokens});
    const size_t columns = static_cast<size_t>(model_.config().channels);
    Embedded out;
    // Some at a time: a row is larger than a token, an embedding smaller than a text.
    for (size_t first = 0; first < lengths.size();) {
      const size_t n = texts_within(lengths, first, kRowsAtOnce);
      const TextRows part = rows.slice(first, n);
      request_.memory->take(part.count() * columns * sizeof(float));
      const std::vector<float> states =
          run_texts(model_.batcher(), part, requester_of(request_), spent_);
      if (!all_finite(states)) refuse_overflow(model_, false);
      size_t at = 0;
      for (const uint32_t length : part.lengths) {
        const auto one = sentences.pool(std::span(states).subspan(at, length * columns), false);
        out.values.insert(out.values.end(), one.begin(), one.end());
        at += length * columns;
      }
      first += n;
    }
    return out;
  }
  std::string server_timing() const override {
    std::string header;
    serve::add_timing(header, "device", model_.device().name());
    serve::add_timing(header, "queue", spent_.queue_ms);
    serve::add_timing(header, "compute", spent_.compute_ms);
    return header;
  }

 private:
  static constexpr size_t kRowsAtOnce = 8192;
  Cloud& cloud_;
  ServedModel& model_;
  const http::Request& request_;
  Forward::Spent spent_;
};

http::Response embeddings(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  return serve::embeddings(request, [&](const std::string& id) {
    ServedModel& model = cloud.find(id);
    serve::TextModel work{model.id(), &model.config(), model.tokenizer(),
                          [&] { return std::make_unique<EmbeddingWork>(cloud, model, request); }};
    work.sentences = &model.sentences();
    return work;
  });
}

}  // namespace

Routes forward_routes(Cloud& cloud) {
  Routes routes = {
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
       .handler = std::bind_front(forward, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/completions",
       .summary = "Completes texts, as OpenAI's route of this name does.",
       .statuses = {200, 404},
       .body = serve::completion_fields(),
       .handler = std::bind_front(completions, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/chat/completions",
       .summary = "Answers messages, as OpenAI's route of this name does.",
       .statuses = {200, 404, 501},
       .body = serve::chat_fields(),
       .handler = std::bind_front(chat_completions, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/embeddings",
       .summary = "Returns an embedding of each text.",
       .statuses = {200, 404},
       .body = serve::embedding_fields(),
       .handler = std::bind_front(embeddings, std::ref(cloud))}};
  std::ranges::move(serve::token_routes(
                        [&cloud](const std::string& id) { return reader(cloud, id); }, {200, 404}),
                    std::back_inserter(routes));
  return routes;
}

}  // namespace split::cloud
