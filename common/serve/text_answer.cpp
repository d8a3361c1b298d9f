#include "serve/text_answer.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <random>

#include "base/json.h"
#include "base/sort.h"
#include "serve/audit/answer_receipts.h"
#include "serve/watch.h"
#include "text/utf8.h"

namespace split::serve {
namespace {

std::string next_id(const char* prefix) {
  static std::atomic<uint64_t> counter{0};
  static const uint64_t start = std::random_device()();
  return cat(prefix, Hex{start}, "-", Hex{counter.fetch_add(1)});
}

// One answer. Its choices run at once, as far as there are threads.
class TextAnswer {
 public:
  TextAnswer(const http::Request& http, TextModel model, TextRequest request, const Shape& shape);
  ~TextAnswer();
  TextAnswer(const TextAnswer&) = delete;
  TextAnswer& operator=(const TextAnswer&) = delete;

  http::Response whole(const http::Request& http);
  void expect_stream(const http::Request& http);
  http::Streamed stream(http::Sink& sink);

  std::string server_timing() const { return work_->server_timing(); }

 private:
  // One choice as events.
  class Events;

  using Next = Choices::Next;

  bool run_choices(Watch& watch);
  std::unique_ptr<Watch> new_watch(std::function<bool()> gone);

  size_t each() const { return static_cast<size_t>(request_.best_of); }  // texts of a prompt
  size_t choices() const { return request_.prompts.size() * each(); }
  const std::vector<int32_t>& prompt_of(size_t index) const {
    return request_.prompts[index / each()];
  }
  bool ranks() const { return request_.best_of > request_.choices; }
  GenerateOptions options_of(size_t index) const {
    GenerateOptions options = request_.options;
    // The first choice has the seed of n = 1.
    options.sampling.seed += index % each();
    if (ranks()) options.logprobs = std::max(0, options.logprobs);
    return options;
  }
  std::unique_ptr<Text> begin(size_t index) {
    const GenerateOptions options = options_of(index);
    return request_.words ? work_->begin_words(*request_.words, options)
                          : work_->begin(prompt_of(index), options);
  }
  Json ranked(std::vector<Json> made, const std::vector<double>& scores) const;

  static void add_prompt(LogprobLists& lists, const std::vector<int32_t>& prompt,
                         const Generated& result) {
    for (size_t i = 0; i < prompt.size(); ++i) {
      lists.add(prompt[i],
                i == 0 || i > result.scored_prompt.size() ? nullptr : &result.scored_prompt[i - 1]);
    }
  }

  std::string prompt_text(const std::vector<int32_t>& prompt) const {
    return model_.tokenizer == nullptr ? "" : to_valid_utf8(model_.tokenizer->decode(prompt));
  }

  // Returns the reason: tool_calls if a call was complete.
  std::string reason_of(const Generated& result) const {
    const bool called =
        shape_.chats && result.calls > 0 && result.finish_reason == FinishReason::kStop;
    return std::string(name_of(called ? FinishReason::kToolCalls : result.finish_reason));
  }

  std::string without_spaces(std::string text) const {
    if (request_.skip_spaces) text.erase(0, text.find_first_not_of(' '));
    return text;
  }

  // Counts a prompt once, whatever n is; rows that one of its texts computed count as cached for
  // the others.
  void count(size_t index, const std::vector<int32_t>& prompt, size_t cached,
             const Generated& result) {
    const std::lock_guard lock(counting_);
    if (index % each() == 0) tokens_.prompt += prompt.size();
    tokens_.completion += result.tokens.size();
    thought_tokens_ += result.thought_tokens;
    const auto least = cached_.try_emplace(index / each(), cached).first;
    least->second = std::min(least->second, cached);
  }

  TokenCounts tokens() const {
    TokenCounts all = tokens_;
    for (const auto& [prompt, cached] : cached_) all.cached += cached;
    return all;
  }

  Json usage() const {
    Json usage = usage_of(*work_, tokens());
    const auto& form = request_.options.form;
    if (shape_.chats && form != nullptr && form->form().format.thinks()) {
      usage["completion_tokens_details"] = Json{{"reasoning_tokens", thought_tokens_}};
    }
    return usage;
  }

  Json envelope(const char* object, Json choices) const {
    Json json = {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.id}};
    json["choices"] = std::move(choices);
    return json;
  }

  LogprobLists new_lists() const {
    return {shape_.logprobs, model_.tokenizer, request_.return_token_ids};
  }

  TextModel model_;
  TextRequest request_;
  const Shape& shape_;
  Choices choices_;
  std::unique_ptr<TextBackend> work_;
  AnswerReceipts receipts_;
  std::string id_;
  int64_t created_;
  std::mutex counting_;  // guards:
  TokenCounts tokens_;
  std::map<size_t, size_t> cached_;  // by prompt
  size_t thought_tokens_ = 0;
  // A stream's unfinished choices, and the watch before its first run.
  std::vector<std::unique_ptr<Events>> events_;
  std::unique_ptr<Watch> watch_;
};

http::Response TextAnswer::whole(const http::Request& http) {
  const std::unique_ptr<Watch> watch = new_watch(http.client_gone);
  std::vector<Json> made(choices());
  std::vector<double> scores(choices());
  const auto one = [&](size_t index) {
    std::vector<int32_t> prompt = prompt_of(index);
    Generated result;
    size_t cached = 0;
    Said said;
    choices_.retried([&] {
      const std::unique_ptr<Text> text = begin(index);
      said = {};
      const auto on_text = [&](const TextPiece& piece, const ScoredToken*) {
        said.add(piece);
        return !watch->gone();
      };
      while (text->next(on_text)) continue;
      result = text->take();
      cached = text->cached();
      if (request_.words) prompt.assign(text->prompt().begin(), text->prompt().end());
    });
    Json receipt;
    choices_.retried([&] { receipt = receipts_.of(prompt, result, options_of(index)); });
    LogprobLists lists = new_lists();
    if (request_.echo) add_prompt(lists, prompt, result);
    for (const ScoredToken& token : result.scored) lists.add(token.id, &token);
    said.words =
        (request_.echo ? prompt_text(prompt) : "") + without_spaces(to_valid_utf8(said.words));
    Json choice = shape_.choice(std::move(said));
    choice["index"] = index;
    choice["logprobs"] = request_.options.logprobs >= 0 ? lists.take() : Json();
    choice["finish_reason"] = reason_of(result);
    if (!result.stopped_by.empty()) choice["stop_reason"] = to_valid_utf8(result.stopped_by);
    if (request_.return_token_ids) {
      choice["prompt_token_ids"] = prompt;
      choice["token_ids"] = result.tokens;
    }
    if (!receipt.is_null()) choice["receipt"] = std::move(receipt);
    made[index] = std::move(choice);
    scores[index] = mean_logprob(result);
    count(index, prompt, cached, result);
    return result.finish_reason == FinishReason::kCancelled ? Next::kStop : Next::kGoOn;
  };
  choices_.run(choices(), one, [this] { work_->cancel(); });
  Json json = envelope(shape_.object, ranks() ? ranked(std::move(made), scores) : std::move(made));
  json["usage"] = usage();
  return http::Response::json(200, json.dump() + "\n");
}

// Returns the likeliest texts of each prompt, best first; among equals the smaller seed's.
Json TextAnswer::ranked(std::vector<Json> made, const std::vector<double>& scores) const {
  Json best = Json::array();
  std::vector<size_t> order(each());
  for (size_t first = 0; first < made.size(); first += each()) {
    std::iota(order.begin(), order.end(), first);
    sort_stably(order, std::greater<>(), [&](size_t i) { return scores[i]; });
    for (size_t i = 0; i < static_cast<size_t>(request_.choices); ++i) {
      made[order[i]]["index"] = best.size();
      best.push_back(std::move(made[order[i]]));
    }
  }
  return best;
}

class TextAnswer::Events {
 public:
  Events(TextAnswer& answer, size_t index)
      : answer_(answer),
        index_(index),
        prompt_(answer.prompt_of(index)),
        options_(answer.options_of(index)),
        at_once_(answer.request_.echo && options_.score_prompt),
        next_{answer.new_lists(), {}, {}},
        at_start_(answer.request_.skip_spaces) {}

  // Runs until the text's end, or until the reader has enough for now.
  Next run(Watch& watch) {
    watch_ = &watch;
    if (!open()) return Next::kStop;
    bool ended = result_.has_value();
    if (!ended && (!answer_.choices_.retried([&] { ended = advance(); }) || !ended)) {
      return Next::kPause;
    }
    if (!result_) {
      result_ = text_->take();
      if (answer_.request_.words) prompt_.assign(text_->prompt().begin(), text_->prompt().end());
      answer_.count(index_, prompt_, text_->cached(), *result_);
      text_.reset();
    }
    const auto prove = [&] { receipt_ = answer_.receipts_.of(prompt_, *result_, options_); };
    if (!answer_.choices_.retried(prove)) return Next::kPause;
    const Generated& result = *result_;
    const bool wanted = result.finish_reason != FinishReason::kCancelled &&
                        (!at_once_ || send_all(result)) && send(nullptr, &result);
    return wanted ? Next::kGoOn : Next::kStop;
  }
  // Whether it has begun: it keeps its rows while it waits.
  bool begun() const { return text_ != nullptr; }

 private:
  // Sends the events before the text, once.
  bool open() {
    if (std::exchange(opened_, true)) return true;
    if (answer_.shape_.chats && !send_words("")) return false;
    return !answer_.request_.echo || at_once_ || send_words(answer_.prompt_text(prompt_));
  }

  // Makes tokens. Returns false when the reader has enough. A text that restarts gives equal words
  // again: each is sent once.
  bool advance() {
    try {
      if (text_ == nullptr) {
        text_ = answer_.begin(index_);
        pieces_.made = 0;
      }
      const auto on_text = [this](const TextPiece& piece, const ScoredToken* token) {
        if (pieces_.made++ < pieces_.sent) return true;
        pieces_.sent = pieces_.made;
        if (first_ && answer_.request_.words)
          prompt_.assign(text_->prompt().begin(), text_->prompt().end());
        return tell(piece, token);
      };
      while (text_->next(on_text)) {
        if (watch_->full()) return false;
      }
      return true;
    } catch (...) {
      text_.reset();
      throw;
    }
  }

  bool tell(TextPiece piece, const ScoredToken* token) {
    if (at_once_) return !watch_->gone();
    counts_.cached = text_->cached();
    if (token != nullptr) {
      ++counts_.completion;
      next_.ids.push_back(token->id);
      if (options_.logprobs >= 0) next_.lists.add(token->id, token);
    }
    if (at_start_ && piece.part == TextPiece::kWords) {
      std::string_view& text = piece.bytes;
      text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
      at_start_ = text.empty();
    }
    if (piece.part == TextPiece::kName) next_.said.add(piece);
    if (piece.bytes.empty() && !answer_.request_.return_token_ids) return !watch_->gone();
    return send(&piece, nullptr);
  }

  bool send_words(std::string_view words) {
    const TextPiece piece(words);
    return send(&piece, nullptr);
  }

  // Sends an event, whose text is whole characters; other bytes would not be JSON.
  bool send(const TextPiece* piece, const Generated* ended) {
    Json choice = answer_.shape_.piece(piece, next_.said, first_);
    choice["index"] = index_;
    choice["logprobs"] =
        options_.logprobs >= 0 && !next_.lists.empty() ? next_.lists.take() : Json();
    choice["finish_reason"] = ended == nullptr ? Json() : Json(answer_.reason_of(*ended));
    if (ended != nullptr && !ended->stopped_by.empty()) {
      choice["stop_reason"] = to_valid_utf8(ended->stopped_by);
    }
    if (answer_.request_.return_token_ids) {
      if (first_) choice["prompt_token_ids"] = prompt_;
      choice["token_ids"] = std::exchange(next_.ids, {});
    }
    first_ = false;
    if (ended != nullptr && !receipt_.is_null()) choice["receipt"] = std::move(receipt_);
    Json chunk = answer_.envelope(answer_.shape_.chunk_object, Json::array({std::move(choice)}));
    if (answer_.request_.continuous_usage) {
      chunk["usage"] =
          usage_of(*answer_.work_, {prompt_.size(), counts_.cached, counts_.completion});
    } else if (answer_.request_.include_usage) {
      chunk["usage"] = nullptr;
    }
    return watch_->tell({{chunk.dump()}}, answer_.model_.comment ? answer_.model_.comment() : "");
  }

  // Sends the whole choice at once: the prompt's scores are known only at the end of its pass.
  bool send_all(const Generated& result) {
    add_prompt(next_.lists, prompt_, result);
    for (const ScoredToken& token : result.scored) next_.lists.add(token.id, &token);
    next_.ids = result.tokens;
    return send_words(answer_.prompt_text(prompt_) + result.text);
  }

  // The contents of the next event.
  struct NextEvent {
    LogprobLists lists;
    Said said;
    std::vector<int32_t> ids;
  };
  // Pieces of the text: made in this run, and sent.
  struct Pieces {
    size_t made = 0, sent = 0;
  };

  TextAnswer& answer_;
  const size_t index_;
  std::vector<int32_t> prompt_;
  const GenerateOptions options_;
  const bool at_once_;
  NextEvent next_;
  TokenCounts counts_;  // without the prompt's
  bool opened_ = false, first_ = true;
  bool at_start_;  // the text's first spaces are still skipped
  Pieces pieces_;
  Watch* watch_ = nullptr;  // while it runs
  std::unique_ptr<Text> text_;
  std::optional<Generated> result_;  // once the text has ended
  Json receipt_;
};

TextAnswer::TextAnswer(const http::Request& http, TextModel model, TextRequest request,
                       const Shape& shape)
    : model_(std::move(model)),
      request_(std::move(request)),
      shape_(shape),
      choices_(model_.spare),
      work_(model_.begin()),
      receipts_(model_, request_, http.memory),
      id_(next_id(shape.id_prefix)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

TextAnswer::~TextAnswer() = default;

// Starts the watch before the status goes out, which can then report that no thread is free.
void TextAnswer::expect_stream(const http::Request& http) {
  for (size_t i = 0; i < choices(); ++i) events_.push_back(std::make_unique<Events>(*this, i));
  watch_ = new_watch(http.client_gone);
}

std::unique_ptr<Watch> TextAnswer::new_watch(std::function<bool()> gone) {
  return std::make_unique<Watch>(
      std::move(gone), [this] { work_->cancel(); }, model_.quiet);
}

// Runs the unfinished choices. Returns false when there are none left.
bool TextAnswer::run_choices(Watch& watch) {
  std::vector<Next> said(events_.size(), Next::kPause);
  const auto one = [&](size_t i) { return said[i] = events_[i]->run(watch); };
  choices_.run(events_.size(), one, [this] { work_->cancel(); });
  if (std::ranges::find(said, Next::kStop) != said.end()) return false;
  std::vector<std::unique_ptr<Events>> waiting;
  for (size_t i = 0; i < said.size(); ++i) {
    if (said[i] == Next::kPause) waiting.push_back(std::move(events_[i]));
  }
  events_ = std::move(waiting);
  // First the choices that hold memory which others may wait for.
  std::stable_partition(events_.begin(), events_.end(),
                        [](const auto& events) { return events->begun(); });
  if (!events_.empty()) return true;
  if (request_.include_usage) {
    Json chunk = envelope(shape_.chunk_object, Json::array());
    chunk["usage"] = usage();
    watch.tell({{chunk.dump()}});
  }
  watch.done();
  return false;
}

// Holds no thread between two calls.
http::Streamed TextAnswer::stream(http::Sink& sink) {
  std::unique_ptr<Watch> watch = std::move(watch_);
  try {
    if (watch == nullptr) watch = new_watch([&sink] { return sink.client_gone(); });
    watch->attach(sink);
    if (run_choices(*watch)) return http::Streamed::kMore;
  } catch (...) {
    // The status has gone out: the error is an event, and no [DONE] follows.
    std::string error = http::error_response(http::current_exception_as_error()).body;
    error.erase(error.find_last_not_of('\n') + 1);
    watch.reset();
    sink.tell({{std::move(error)}});
  }
  return http::Streamed::kDone;
}

}  // namespace

http::Response text_answer(const http::Request& http, TextModel model, TextRequest request,
                           const Shape& shape) {
  request.options.sampling.validate();
  const bool stream = request.stream;
  const std::string loosened = request.loosened;
  const auto answer =
      std::make_shared<TextAnswer>(http, std::move(model), std::move(request), shape);
  if (stream) answer->expect_stream(http);
  http::Response response =
      stream ? http::Response::events([answer](http::Sink& sink) { return answer->stream(sink); })
             : answer->whole(http);
  const std::string timing = answer->server_timing();
  if (!timing.empty()) response.headers.set("Server-Timing", timing);
  if (!loosened.empty()) response.headers.set("Split-Schema-Loosened", loosened);
  return response;
}

}  // namespace split::serve
