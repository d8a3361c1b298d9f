#include "edge_client/cloud/cloud_completion.h"

#include "base/json.h"
#include "base/resources/clock.h"
#include "text/utf8.h"
#include "wire/codes.h"
#include "wire/sampling.h"

namespace split::edge {
namespace {

Json request_of(const std::string& model, Json words, const GenerateOptions& options) {
  Json body = std::move(words);
  wire::write_sampling(options.sampling, body);
  body["model"] = model;
  if (options.max_tokens >= 0) body["max_tokens"] = options.max_tokens;
  body["stream"] = true;
  body["return_token_ids"] = true;
  if (options.min_tokens != 0) body["min_tokens"] = options.min_tokens;
  // A form that only separates thoughts from words does not concern the model.
  const AnswerForm* const form = options.form == nullptr ? nullptr : &options.form->form();
  if (form != nullptr && (form->calls() || form->schema || !options.stop.empty())) {
    body["response_format"] = form->to_json();
  }
  if (options.ignore_end) body["ignore_eos"] = true;
  if (!options.cache_prompt) body["cache_prompt"] = false;
  if (!options.cache_salt.empty()) body["cache_salt"] = options.cache_salt;
  if (options.logprobs >= 0) body["logprobs"] = options.logprobs;
  if (!options.stop.empty()) body["stop"] = options.stop.texts();
  if (options.generated > 0) body["generated"] = options.generated;
  return body;
}

std::string session_path(const std::string& model, const std::string& session) {
  return cat(wire::model_path(path_segment(model)), "/sessions/", session, "/completions");
}

// Events without a token: the end, the usage, an error.
constexpr size_t kOtherEvents = 16;
constexpr int kMostUnasked = 1 << 18;  // tokens of a text that the server alone bounds

// Most bytes of the requested stream: an event for each token, with its likeliest ones.
uint64_t most_bytes(const GenerateOptions& options) {
  constexpr uint64_t kPrompt = 1 << 20, kEvent = 16 << 10, kLikely = 512;
  const auto events = static_cast<uint64_t>(std::max(0, options.max_tokens)) + kOtherEvents;
  return kPrompt +
         events * (kEvent + static_cast<uint64_t>(std::max(0, options.logprobs)) * kLikely);
}

// One stream of events: feeds a loop's next tokens, or without a loop hands on ids and words.
class CompletionStream {
 public:
  CompletionStream(TextLoop* loop, const GenerateOptions& options, const OnText& on_text,
                   Traffic& traffic, uint64_t& steps, EarlyText* opened = nullptr)
      : opened_(opened),
        loop_(loop),
        options_(options),
        on_text_(on_text),
        traffic_(traffic),
        steps_(steps) {}

  // Sends the request, and reads its events. Throws RemoteError, also for a stream that makes no
  // sense.
  void read(Remote& remote, const std::string& path, const std::string& body);
  // Returns kNone if there was no finish reason.
  FinishReason finish();
  size_t tokens() const { return tokens_; }
  uint64_t cached() const { return cached_; }  // prompt tokens, by the usage

 private:
  bool take(std::string_view event);
  bool take_token(const ScoredToken& token, std::string_view words);
  void count_time();
  size_t most_tokens() const { return static_cast<size_t>(std::max(0, options_.max_tokens)); }

  EarlyText* const opened_;  // set if the text comes as words
  TextLoop* const loop_;
  const GenerateOptions& options_;
  const OnText& on_text_;
  Traffic& traffic_;
  uint64_t& steps_;
  Clock::time_point last_ = Clock::now();
  size_t events_ = 0, tokens_ = 0;
  uint64_t cached_ = 0;
  FinishReason reason_ = FinishReason::kNone;
};

void CompletionStream::read(Remote& remote, const std::string& path, const std::string& body) {
  try {
    remote.complete(
        path, body, [this](std::string_view event) { return take(event); }, most_bytes(options_),
        traffic_);
  } catch (const RemoteError&) {
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw RemoteError(cat("[server] ", remote.origin(), ": ", error.what()), 200, "");
  }
}

// Feeds a token. A loop that has ended takes no more, and waits for the stream's end.
bool CompletionStream::take_token(const ScoredToken& token, std::string_view words) {
  bool wanted = true;
  if (loop_ == nullptr) {
    wanted = !on_text_ || on_text_(TextPiece(words), &token);
  } else if (!loop_->ended()) {
    loop_->token(token, [&](const TextPiece& piece, const ScoredToken* of) {
      return wanted = !on_text_ || on_text_(piece, of);
    });
  }
  if (!wanted) reason_ = FinishReason::kCancelled;
  return wanted;
}

// Counts the time up to the last token, not that of the stream's end.
void CompletionStream::count_time() {
  if (tokens_ > 0 && tokens_ == most_tokens()) return;
  const Clock::time_point now = Clock::now();
  traffic_.stream_ms += std::chrono::duration<double, std::milli>(now - last_).count();
  last_ = now;
}

bool CompletionStream::take(std::string_view text) {
  count_time();
  if (++events_ > most_tokens() + kOtherEvents) {
    throw Error(ErrorKind::kInput, cat("an answer of more than ", events_ - 1, " events, for ",
                                       most_tokens(), " tokens"));
  }
  const Json event = parse_json(text, 16, "an event");
  if (event.contains("error")) {
    const Json& error = event["error"];
    const Json *named = error.find("code"), *message = error.find("message");
    const std::string code = named == nullptr ? "" : named->text();
    throw RemoteError(cat("[server] ", message == nullptr ? "'an error without a message'"
                                                          : shown(message->text())),
                      code == wire::codes::kBusy ? 503 : 500,
                      code);  // the status that came too late
  }
  const Json& choices = event.at("choices");
  if (!choices.is_array() || choices.empty()) {
    if (const Json* const usage = event.find("usage"); usage != nullptr && usage->is_object()) {
      const Json* const details = usage->find("prompt_tokens_details");
      if (details != nullptr) cached_ = details->at("cached_tokens").get<uint32_t>();
    }
    return true;
  }
  const Json& choice = choices[0];
  if (choice.contains("finish_reason") && choice["finish_reason"].is_string()) {
    reason_ = finish_reason_named(choice["finish_reason"].text());
  }
  std::string words;
  if (opened_ != nullptr) {
    if (choice.contains("prompt_token_ids")) {
      for (const Json& value : choice["prompt_token_ids"]) {
        opened_->prompt.push_back(value.get<int32_t>());
      }
    }
    words = choice.at("text").text();
  }
  if (!choice.contains("token_ids") || choice["token_ids"].is_null() ||
      choice["token_ids"].empty()) {
    if (words.empty() || !on_text_ || on_text_(TextPiece(words), nullptr)) return true;
    reason_ = FinishReason::kCancelled;
    return false;
  }
  size_t index = 0;
  for (const Json& value : choice["token_ids"]) {
    ScoredToken token;
    token.id = value.get<int32_t>();
    if (tokens_ == most_tokens()) {  // more than requested
      reason_ = FinishReason::kLength;
      return false;
    }
    if (token.id < 0) throw Error(ErrorKind::kInput, "a token id below 0");
    if (options_.logprobs >= 0 && choice.contains("logprobs") && choice["logprobs"].is_object()) {
      const Json& logprobs = choice["logprobs"];
      token.logprob = logprobs.at("token_logprobs").at(index).get<float>();
      if (logprobs.contains("top_token_ids")) {
        for (const Json& pair : logprobs["top_token_ids"].at(index)) {
          token.top.push_back({pair.at(0).get<int32_t>(), pair.at(1).get<float>()});
        }
      }
    }
    ++index;
    ++tokens_;
    ++steps_;
    if (opened_ != nullptr) opened_->tokens.push_back(token);
    const bool last = tokens_ == most_tokens();  // the stream ends by itself after it
    if (!take_token(token, std::exchange(words, {})) && !last) return false;
  }
  return true;
}

FinishReason CompletionStream::finish() {
  count_time();
  return reason_;
}

}  // namespace

Generated complete_on_cloud(Remote& remote, const wire::ModelInfo& model,
                            const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                            const GenerateOptions& options, const OnText& on_text,
                            const RetryOptions& retry_options, Waiter& waiter, size_t layers,
                            SplitCounts& counts) {
  for (const std::string& stop : options.stop.texts()) {
    if (to_valid_utf8(stop) != stop) {
      throw Error(ErrorKind::kInput, "--stop: expected UTF-8 for --cut cloud");
    }
  }
  Json asked = request_of(model.id, Json{{"prompt", prompt}}, options);
  // The usage has the number of cached tokens.
  if (model.knows(wire::kCacheFeature)) asked["stream_options"] = {{"include_usage", true}};
  const std::string body = asked.dump();
  Retry retry(retry_options, waiter);
  // Only ids come, and decoding them needs nothing else of the model.
  ModelConfig config;
  config.context = static_cast<int>(prompt.size()) + std::max(0, options.max_tokens);
  config.end_of_text = -1;
  size_t shown = 0, most_tokens = 0;  // pieces that the reader has from all streams
  bool lost = false, begun = false;
  const auto goes_on = [&](size_t tokens) {
    if (tokens == 0) return;
    counts.survived += std::exchange(lost, false) ? 1 : 0;
    counts.replays += std::exchange(begun, true) ? 1 : 0;
  };
  for (;;) {
    TextLoop loop(config, tokenizer, prompt, options);
    size_t at = 0;
    const OnText unseen = [&](const TextPiece& piece, const ScoredToken* token) {
      if (at++ < shown) return true;
      shown = at;
      return !on_text || on_text(piece, token);
    };
    CompletionStream stream(&loop, options, unseen, counts.traffic, counts.steps);
    try {
      stream.read(remote, "/v1/completions", body);
    } catch (const RemoteError& error) {
      if (stream.tokens() > most_tokens) {
        most_tokens = stream.tokens();
        retry.succeeded();  // progress: the budget is for a server that makes none
      }
      goes_on(stream.tokens());
      if (stream.tokens() > 0) {
        counts.cloud_layer_rows += (prompt.size() + stream.tokens() - 1) * layers;
      }
      if (error.loses() && !waiter.interrupted() && !std::exchange(lost, true)) ++counts.losses;
      retry.failed(error);
      continue;
    }
    const FinishReason reason = stream.finish();
    goes_on(std::max<size_t>(1, stream.tokens()));
    counts.cached_rows = std::min<uint64_t>(stream.cached(), prompt.size());
    if (stream.tokens() == 0) ++counts.steps;
    if (reason == FinishReason::kNone) {
      throw RemoteError(cat("[server] ", remote.origin(), ": an answer without a finish_reason"),
                        200, "");
    }
    loop.end(reason, unseen);
    return loop.take();
  }
}

void open_on_cloud(Remote& remote, const std::string& model, const Json& words,
                   GenerateOptions options, const std::function<bool()>& ready,
                   const OnText& on_text, EarlyText& opened, SplitCounts& counts) {
  const Json body = request_of(model, words, options);
  if (options.max_tokens < 0) options.max_tokens = kMostUnasked;
  const std::string path = session_path(model, opened.session);
  const OnText until_ready = [&](std::string_view text, const ScoredToken* token) {
    opened.text_bytes += text.size();
    return on_text(TextPiece(text), token) && !ready();
  };
  CompletionStream stream(nullptr, options, until_ready, counts.traffic, counts.steps, &opened);
  ++counts.trips;
  stream.read(remote, path, body.dump());
  if (const auto& said = remote.said_of_load()) {
    counts.cached_rows = std::min<uint64_t>(said->cached, opened.prompt.size());
  }
  opened.finish_reason = stream.finish();
  if (opened.finish_reason == FinishReason::kCancelled) opened.finish_reason = FinishReason::kNone;
}

FinishReason stream_on_session(Remote& remote, const wire::ModelInfo& model, const Stream& asked,
                               const CloudLink::OnToken& on_token) {
  const std::string path = session_path(model.id, asked.session);
  bool goes_on = true;
  // The caller decodes the ids.
  const OnText on_text = [&](std::string_view, const ScoredToken* token) {
    if (token != nullptr) goes_on = on_token(*token);
    return goes_on;
  };
  Json body = request_of(model.id, Json{{"prompt", asked.ids}}, asked.options);
  if (asked.can) body["can"] = *asked.can;
  if (asked.again && model.knows(wire::kAgainFeature)) body["again"] = true;
  uint64_t steps = 0;  // not used: the text counts them
  CompletionStream stream(nullptr, asked.options, on_text, asked.counts->traffic, steps);
  stream.read(remote, path, body.dump());
  const bool whole = stream.tokens() == static_cast<size_t>(asked.options.max_tokens);
  return goes_on || whole ? stream.finish() : FinishReason::kNone;
}

}  // namespace split::edge
