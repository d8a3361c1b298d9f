#include "serve/text_answer.h"

#include <atomic>
#include <mutex>
#include <random>

#include "base/json.h"
#include "http/sse.h"
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
  TextAnswer(TextModel model, TextRequest request, const Shape& shape)
      : model_(std::move(model)),
        request_(std::move(request)),
        shape_(shape),
        choices_(model_.spare),
        work_(model_.begin()),
        id_(next_id(shape.id_prefix)),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  http::Response whole(const http::Request& http);
  void stream(http::Sink& sink);

  std::string server_timing() const { return work_->server_timing(); }

 private:
  // One choice as events.
  class Events;

  size_t choices() const { return request_.prompts.size() * static_cast<size_t>(request_.choices); }
  template <typename Body>
  void for_each_choice(const Body& body) {
    const auto one = [&](size_t index) {
      const auto n = static_cast<size_t>(request_.choices);
      GenerateOptions options = request_.options;
      options.sampling.seed += index % n;  // the first choice is that of n = 1
      return body(index, request_.prompts[index / n], options);
    };
    choices_.run(choices(), one, [this] { work_->cancel(); });
  }

  // A text that is begun again gives the same words again: on_text gets each once.
  Generated generate(const std::vector<int32_t>& prompt, const GenerateOptions& options,
                     const OnText& on_text) {
    Generated result;
    size_t told = 0;
    choices_.retried([&] {
      size_t at = 0;
      result = work_->generate(prompt, options, [&](std::string_view text, const auto* token) {
        if (at++ < told) return true;
        told = at;
        return on_text(text, token);
      });
    });
    return result;
  }

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

  std::string without_spaces(std::string text) const {
    if (request_.skip_spaces) text.erase(0, text.find_first_not_of(' '));
    return text;
  }

  // A prompt counts once, whatever n is.
  void count(size_t index, const std::vector<int32_t>& prompt, const Generated& result) {
    const std::lock_guard lock(counting_);
    if (index % static_cast<size_t>(request_.choices) == 0) prompt_tokens_ += prompt.size();
    completion_tokens_ += result.tokens.size();
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
  std::string id_;
  int64_t created_;
  std::mutex counting_;  // of:
  size_t prompt_tokens_ = 0, completion_tokens_ = 0;
};

http::Response TextAnswer::whole(const http::Request& http) {
  const Watch watch(http.client_gone, [this] { work_->cancel(); });
  std::vector<Json> made(choices());
  for_each_choice([&](size_t index, const auto& prompt, const GenerateOptions& options) {
    const Generated result = generate(prompt, options, [&](auto, auto*) { return !watch.gone(); });
    LogprobLists lists = new_lists();
    if (request_.echo) add_prompt(lists, prompt, result);
    for (const ScoredToken& token : result.scored) lists.add(token.id, &token);
    Json choice = shape_.choice((request_.echo ? prompt_text(prompt) : "") +
                                without_spaces(to_valid_utf8(result.text)));
    choice["index"] = index;
    choice["logprobs"] = options.logprobs >= 0 ? lists.take() : Json();
    choice["finish_reason"] = result.finish_reason;
    if (request_.return_token_ids) {
      choice["prompt_token_ids"] = prompt;
      choice["token_ids"] = result.tokens;
    }
    made[index] = std::move(choice);
    count(index, prompt, result);
    return result.finish_reason != "cancelled";
  });
  Json json = envelope(shape_.object, std::move(made));
  json["usage"] = usage_of(*work_, prompt_tokens_, completion_tokens_);
  return http::Response::json(200, json.dump() + "\n");
}

class TextAnswer::Events {
 public:
  Events(TextAnswer& answer, Watch& watch, size_t index, const std::vector<int32_t>& prompt,
         const GenerateOptions& options)
      : answer_(answer),
        request_(answer.request_),
        watch_(watch),
        index_(index),
        prompt_(prompt),
        options_(options),
        lists_(answer.new_lists()),
        at_start_(request_.skip_spaces) {}

  // False when nobody reads any more.
  bool run() {
    if (answer_.shape_.opens && !send("", nullptr)) return false;
    const Generated result = request_.echo && options_.score_prompt ? at_once() : as_it_comes();
    answer_.count(index_, prompt_, result);
    return result.finish_reason != "cancelled" && send("", result.finish_reason.c_str());
  }

 private:
  // Each event's text is made of whole characters; anything else would not be JSON.
  bool send(std::string text, const char* finish) {
    Json choice = answer_.shape_.piece(to_valid_utf8(text), first_, finish != nullptr);
    choice["index"] = index_;
    choice["logprobs"] = options_.logprobs >= 0 && !lists_.empty() ? lists_.take() : Json();
    choice["finish_reason"] = finish == nullptr ? Json() : Json(finish);
    if (request_.return_token_ids) {
      if (first_) choice["prompt_token_ids"] = prompt_;
      choice["token_ids"] = std::exchange(ids_, {});
    }
    first_ = false;
    Json chunk = answer_.envelope(answer_.shape_.chunk_object, Json::array({std::move(choice)}));
    if (request_.continuous_usage) {
      chunk["usage"] = usage_of(*answer_.work_, prompt_.size(), tokens_);
    } else if (request_.include_usage) {
      chunk["usage"] = nullptr;
    }
    return watch_.write(http::sse_event(chunk.dump()));
  }

  // The prompt's scores are known only at the end of its pass: all of this choice in one go.
  Generated at_once() {
    Generated result =
        answer_.generate(prompt_, options_, [&](auto, auto*) { return !watch_.gone(); });
    add_prompt(lists_, prompt_, result);
    for (const ScoredToken& token : result.scored) lists_.add(token.id, &token);
    ids_ = result.tokens;
    if (!send(answer_.prompt_text(prompt_) + result.text, nullptr)) {
      result.finish_reason = "cancelled";
    }
    return result;
  }

  Generated as_it_comes() {
    if (request_.echo) send(answer_.prompt_text(prompt_), nullptr);
    return answer_.generate(
        prompt_, options_, [&](std::string_view text, const ScoredToken* token) {
          if (token != nullptr) {
            ++tokens_;
            ids_.push_back(token->id);
            if (options_.logprobs >= 0) lists_.add(token->id, token);
          }
          if (at_start_) {
            text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
            at_start_ = text.empty();
          }
          if (text.empty() && !request_.return_token_ids) return !watch_.gone();
          return send(std::string(text), nullptr);
        });
  }

  TextAnswer& answer_;
  const TextRequest& request_;
  Watch& watch_;
  const size_t index_;
  const std::vector<int32_t>& prompt_;
  const GenerateOptions& options_;
  LogprobLists lists_;
  bool first_ = true;
  size_t tokens_ = 0;
  bool at_start_;             // of a text whose first spaces are skipped
  std::vector<int32_t> ids_;  // whose text is in the next event
};

void TextAnswer::stream(http::Sink& sink) {
  Watch watch([&sink] { return sink.client_gone(); }, [this] { work_->cancel(); }, &sink,
              model_.quiet);
  try {
    for_each_choice([&](size_t index, const auto& prompt, const GenerateOptions& options) {
      return Events(*this, watch, index, prompt, options).run();
    });
    if (request_.include_usage) {
      Json chunk = envelope(shape_.chunk_object, Json::array());
      chunk["usage"] = usage_of(*work_, prompt_tokens_, completion_tokens_);
      watch.write(http::sse_event(chunk.dump()));
    }
    watch.write(http::sse_done());
  } catch (...) {
    // The status has gone out: the error is an event, and no [DONE] follows.
    std::string error = http::error_response(http::current_exception_as_error()).body;
    error.erase(error.find_last_not_of('\n') + 1);
    watch.write(http::sse_event(error));
  }
}

}  // namespace

const Shape kCompletionShape = {"cmpl-",
                                "text_completion",
                                "text_completion",
                                LogprobLists::Kind::kCompletion,
                                [](std::string text) {
                                  return Json{{"text", std::move(text)}};
                                },
                                [](std::string text, bool, bool) {
                                  return Json{{"text", std::move(text)}};
                                },
                                false};

const Shape kChatShape = {
    "chatcmpl-",
    "chat.completion",
    "chat.completion.chunk",
    LogprobLists::Kind::kChat,
    [](std::string text) {
      return Json{
          {"message", {{"role", "assistant"}, {"content", std::move(text)}, {"refusal", nullptr}}}};
    },
    [](std::string text, bool first, bool last) {
      Json delta = Json::object();
      if (first) delta["role"] = "assistant";
      if (!last) delta["content"] = std::move(text);
      return Json{{"delta", std::move(delta)}};
    },
    true};

http::Response text_answer(const http::Request& http, TextModel model, TextRequest request,
                           const Shape& shape) {
  request.options.sampling.validate();
  const bool stream = request.stream;
  const auto answer = std::make_shared<TextAnswer>(std::move(model), std::move(request), shape);
  http::Response response =
      stream ? http::Response::events([answer](http::Sink& sink) { answer->stream(sink); })
             : answer->whole(http);
  const std::string timing = answer->server_timing();
  if (!timing.empty()) response.headers.set("Server-Timing", timing);
  return response;
}

Json usage_of(const TextBackend& work, size_t prompt_tokens,
              std::optional<size_t> completion_tokens) {
  Json usage = {{"prompt_tokens", prompt_tokens},
                {"total_tokens", prompt_tokens + completion_tokens.value_or(0)}};
  if (completion_tokens) usage["completion_tokens"] = *completion_tokens;
  const std::string receipt = work.receipt();
  if (!receipt.empty()) usage["splitcompute"] = parse_json(receipt, 8, "the receipt");
  return usage;
}

}  // namespace split::serve
