// Whole texts: completions, chats, embeddings, and texts as tokens.
#include <algorithm>

#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "run/text/generate.h"
#include "run/text/texts.h"
#include "serve/chat.h"
#include "serve/compat/messages.h"
#include "serve/compat/rerank.h"
#include "serve/completions.h"
#include "serve/embeddings.h"
#include "serve/models.h"
#include "serve/tokens.h"

namespace split::cloud {
namespace {

// Charges a completion's rows to its key, and refuses results that are not finite.
class CountedForward : public LocalForward {
 public:
  CountedForward(ServedModel& model, const serve::ApiKeys& keys, const Requester& requester,
                 const GenerateOptions& options)
      : LocalForward(model.batcher(), requester, prefix_root(requester, options)),
        model_(model),
        keys_(keys),
        name_(requester.owner) {}
  std::span<const float> run(const SequenceRows& rows) override {
    std::span<const float> logits = LocalForward::run(rows);
    if (!all_finite(logits) && forget_cached()) logits = LocalForward::run(rows);
    if (!all_finite(logits)) refuse_overflow(model_, false);
    return logits;
  }

 private:
  void computes(const SequenceRows& rows) override {
    keys_.took_rows(name_, model_.batcher().shard().whole_rows(rows));
  }

  ServedModel& model_;
  const serve::ApiKeys& keys_;
  const std::string name_;
};

// Returns what receipts say of a model. Its rows are this request's.
serve::AuditedModel audited(Cloud& cloud, const http::Request& request, ServedModel& model) {
  if (model.config().encodes()) serve::refuse_without_head();
  wire::ModelInfo info;
  info.config_json = model.checkpoint().config_json();
  info.stages = model.weights().stages({.range = {0, 0}, .formats = StageFormats()});
  return {model.id(), wire::manifest_hash(info), model.bits(), &model.config(),
          [&cloud, &model, requester = requester_of(request)](const SequenceRows& rows,
                                                              uint32_t prompt) {
            cloud.keys.expect_rows(requester.owner);
            cloud.keys.took_rows(requester.owner, model.batcher().shard().whole_rows(rows));
            std::vector<float> states = whole_text(model.batcher(), requester, rows, prompt);
            if (!all_finite(states)) refuse_overflow(model, false);
            return states;
          }};
}

http::Response audit(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  return cloud.audits.answer(
      request, [&](const std::string& id) { return audited(cloud, request, cloud.find(id)); });
}

// Returns a model that this request's texts run on.
serve::TextModel writer(Cloud& cloud, const http::Request& request, const std::string& id) {
  ServedModel& model = cloud.find(id);
  if (model.config().encodes()) serve::refuse_without_head();
  serve::TextModel work = serve::local_backend(
      model.id(), model.config(), model.tokenizer(),
      [&cloud, &model, requester = requester_of(request)](size_t, const GenerateOptions& options) {
        return std::make_unique<CountedForward>(model, cloud.keys, requester, options);
      },
      model.device().name());
  work.spare = &cloud.spare;
  work.chat = model.chat();
  work.format = &model.answer_format();
  work.special_in_content = model.special_in_content();
  work.audits = &cloud.audits;
  // A stream's later parts are made when the request is gone.
  http::Request client;
  client.principal = request.principal;
  client.client_gone = request.client_gone;
  work.audited = [&cloud, &model, client] { return audited(cloud, client, model); };
  return work;
}

http::Response completions(Cloud& cloud, const http::Request& request) {
  cloud.expect_no_drain();
  cloud.keys.expect_rows(request.principal);
  return serve::completions(request,
                            [&](const std::string& id) { return writer(cloud, request, id); });
}

http::Response chat_completions(Cloud& cloud, const http::Request& request) {
  cloud.expect_no_drain();
  cloud.keys.expect_rows(request.principal);
  return serve::chat_completions(request,
                                 [&](const std::string& id) { return writer(cloud, request, id); });
}

// Returns a model for reading texts and tokens; nothing runs on it.
serve::TextModel reader(Cloud& cloud, const std::string& id) {
  ServedModel& model = cloud.find(id);
  serve::TextModel text;
  text.id = model.id();
  text.config = &model.config();
  text.tokenizer = model.tokenizer();
  text.chat = model.chat();
  text.format = &model.answer_format();
  text.special_in_content = model.special_in_content();
  return text;
}

// Embeds texts on this machine's batcher, in as few steps as possible.
class EmbeddingWork : public serve::TextBackend {
 public:
  EmbeddingWork(Cloud& cloud, ServedModel& model, const http::Request& request)
      : cloud_(cloud), model_(model), request_(request) {}
  std::unique_ptr<Text> begin(std::span<const int32_t>, const GenerateOptions&) override {
    serve::refuse_without_head();
  }
  Embedded embed(Texts texts, Seconds seconds, const Sentences& sentences) override {
    const TextTokens owned(texts, seconds);
    const TextRows rows = owned.to(sentences.point());
    charge_rows(cloud_, request_, model_, {.range = rows.range, .tokens = rows.tokens});
    const size_t columns = static_cast<size_t>(model_.config().channels);
    Embedded out;
    // In groups: a row is larger than a token, an embedding smaller than a text.
    for (size_t first = 0; first < rows.lengths.size();) {
      const size_t n = texts_within(rows.lengths, first, kRowsAtOnce);
      const TextRows part = rows.slice(first, n);
      request_.memory->take(part.count() * columns * sizeof(float));
      const std::vector<float> states =
          run_texts(model_.batcher(), part, requester_of(request_), spent_);
      if (!all_finite(states)) refuse_overflow(model_, false);
      pool_texts(sentences, part.lengths, states, columns, false, out.values);
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

// Embeddings, or scores of pairs.
http::Response pooled(Cloud& cloud,
                      http::Response (*answer)(const http::Request&, const serve::FindModel&),
                      const http::Request& request) {
  cloud.expect_no_drain();
  cloud.keys.expect_rows(request.principal);
  return answer(request, [&](const std::string& id) {
    ServedModel& model = cloud.find(id);
    serve::TextModel work{model.id(), &model.config(), model.tokenizer(),
                          [&] { return std::make_unique<EmbeddingWork>(cloud, model, request); }};
    work.sentences = &model.sentences();
    return work;
  });
}

}  // namespace

Routes text_routes(Cloud& cloud) {
  Routes routes = {{.method = "POST",
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
                   serve::audit_route({200, 404}, std::bind_front(audit, std::ref(cloud))),
                   {.method = "POST",
                    .path = "/v1/embeddings",
                    .summary = "Returns an embedding of each text.",
                    .statuses = {200, 404},
                    .body = serve::embedding_fields(),
                    .handler = std::bind_front(pooled, std::ref(cloud), serve::embeddings)},
                   {.method = "POST",
                    .path = "/v1/rerank",
                    .summary = "Ranks documents by a query, as Jina's and Cohere's routes do.",
                    .statuses = {200, 404},
                    .body = serve::rerank_fields(),
                    .handler = std::bind_front(pooled, std::ref(cloud), serve::rerank)}};
  std::ranges::move(serve::message_routes(std::bind_front(chat_completions, std::ref(cloud)),
                                          [&cloud](const http::Request& request) {
                                            return serve::count_chat_tokens(
                                                request, [&cloud](const std::string& id) {
                                                  return reader(cloud, id);
                                                });
                                          },
                                          {200, 404, 501}),
                    std::back_inserter(routes));
  std::ranges::move(serve::token_routes(
                        [&cloud](const std::string& id) { return reader(cloud, id); }, {200, 404}),
                    std::back_inserter(routes));
  return routes;
}

}  // namespace split::cloud
