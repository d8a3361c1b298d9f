#include "serve/completions.h"

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "http/sse.h"
#include "text/utf8.h"
#include "wire/fields.h"
#include "wire/protocol.h"

namespace split::serve {
namespace {

using Json = nlohmann::json;
using wire::Fields;

constexpr int kMaxPrompts = 64;
constexpr int kMaxChoices = 16;    // n
constexpr int kMaxLogprobs = 100;  // the k largest at each position
constexpr int kMaxStops = 16;
// Positions of all choices, each with what is listed there: bounds the time and the answer's size.
constexpr uint64_t kMaxEntries = 1 << 18;

struct CompletionRequest {
  std::vector<std::vector<int32_t>> prompts;
  GenerateOptions options;
  int choices = 1;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
};

uint64_t draw_seed() {
  std::random_device device;
  // 53 bits, so that a client that reads numbers as doubles can send it back.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
std::vector<std::vector<int32_t>> read_prompts(Fields& fields, const CompletionModel& model,
                                               bool special) {
  const ModelConfig& config = *model.config;
  const auto encode = [&](const std::string& text) {
    return prompt_ids(config, model.tokenizer, text, special);
  };
  if (!fields.has("prompt")) return {prompt_ids(config, model.tokenizer, "", special)};
  const Json& prompt = fields.raw("prompt");
  if (prompt.is_string()) return {encode(prompt.get<std::string>())};
  if (!prompt.is_array() || prompt.empty()) {
    Fields::refuse("prompt", "expected a string, a list of strings or a list of token ids");
  }
  const auto ids_of = [&](const Json& list) {
    const Json wrapped = {{"prompt", list}};
    Fields one(&wrapped);
    std::vector<int32_t> ids =
        one.integers("prompt", 0, config.vocab - 1, static_cast<size_t>(config.context) + 1);
    if (ids.empty()) Fields::refuse("prompt", "expected at least one token id");
    check_prompt(config, ids);
    return ids;
  };
  if (prompt[0].is_number()) return {ids_of(prompt)};
  if (prompt.size() > kMaxPrompts)
    Fields::refuse("prompt", cat("expected at most ", kMaxPrompts, " prompts"));
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : prompt) {
    if (item.is_string()) {
      prompts.push_back(encode(item.get<std::string>()));
    } else {
      prompts.push_back(ids_of(item));
    }
  }
  return prompts;
}

void check_cost(const CompletionRequest& request, const ModelConfig& config) {
  uint64_t positions = 0;  // at most 64 contexts
  for (const auto& prompt : request.prompts) {
    positions += prompt.size();
    positions += std::min(static_cast<uint64_t>(request.options.max_tokens),
                          static_cast<uint64_t>(config.context) - prompt.size());
  }
  const auto choices = static_cast<uint64_t>(request.choices);
  const auto listed = static_cast<uint64_t>(1 + std::max(0, request.options.logprobs));
  if (positions * choices * listed > kMaxEntries) {
    Fields::refuse("max_tokens",
                   cat("prompts and tokens, times n, times logprobs and 1, expected at most ",
                       kMaxEntries, ", got ", positions * choices * listed));
  }
}

CompletionRequest read_request(Fields& fields, const CompletionModel& model) {
  CompletionRequest request;
  GenerateOptions& options = request.options;
  const bool special = fields.boolean_or("special", true);
  request.prompts = read_prompts(fields, model, special);
  options.max_tokens = static_cast<int>(fields.integer_or("max_tokens", 0, 1 << 24, 16));
  options.sampling.temperature = static_cast<float>(fields.number_or("temperature", 0, 100, 1));
  options.sampling.top_p = static_cast<float>(fields.number_or("top_p", 0, 1, 1));
  options.sampling.top_k = static_cast<int>(fields.integer_or("top_k", 0, 1 << 24, 0));
  options.sampling.repetition_penalty =
      static_cast<float>(fields.number_or("repetition_penalty", 0.01, 100, 1));
  options.sampling.seed = fields.has("seed")
                              ? static_cast<uint64_t>(fields.integer("seed", INT64_MIN, INT64_MAX))
                              : draw_seed();
  if (fields.has("stop")) options.stop = fields.texts("stop", kMaxStops);
  for (const std::string& stop : options.stop) {
    if (stop.empty()) Fields::refuse("stop", "expected strings that are not empty");
  }
  options.ignore_end = fields.boolean_or("ignore_eos", false);
  options.logprobs = static_cast<int>(fields.integer_or("logprobs", 0, kMaxLogprobs, -1));
  request.choices = static_cast<int>(fields.integer_or("n", 1, kMaxChoices, 1));
  request.echo = fields.boolean_or("echo", false);
  options.score_prompt = request.echo && options.logprobs >= 0;
  request.stream = fields.boolean_or("stream", false);
  request.return_token_ids = fields.boolean_or("return_token_ids", false);
  if (fields.has("stream_options")) {
    if (!fields.raw("stream_options").is_object()) {
      Fields::refuse("stream_options", "expected an object");
    }
    Fields more(&fields.raw("stream_options"));
    request.include_usage = more.boolean_or("include_usage", false);
    more.finish();
  }
  // What OpenAI's clients may send without changing the answer, and what would change it but is not
  // here.
  for (const char* key : {"user", "metadata", "store", "service_tier"}) fields.ignore(key);
  if (fields.integer_or("best_of", 1, kMaxChoices, request.choices) != request.choices) {
    Fields::refuse("best_of", "expected the same number as n");
  }
  for (const char* key : {"presence_penalty", "frequency_penalty"}) fields.number_or(key, 0, 0, 0);
  if (!fields.text_or("suffix", "").empty()) Fields::refuse("suffix", "is not supported");
  if (fields.has("logit_bias") && !fields.raw("logit_bias").empty()) {
    Fields::refuse("logit_bias", "is not supported");
  }
  fields.finish();
  check_cost(request, *model.config);
  return request;
}

// Texts and log-probabilities of tokens in OpenAI's four parallel lists.
class LogprobLists {
 public:
  // `with_ids`: the most likely tokens by id as well ("top_token_ids", an extension), as texts may
  // coincide.
  LogprobLists(const Tokenizer* tokenizer, bool with_ids)
      : tokenizer_(tokenizer), with_ids_(with_ids) {}

  void add(int32_t id, const ScoredToken* scored) {
    tokens_.push_back(text_of(id));
    offsets_.push_back(offset_);
    offset_ += tokens_.back().get<std::string>().size();
    logprobs_.push_back(scored == nullptr ? Json() : Json(wire::json_number(scored->logprob)));
    Json top, ids = Json::array();
    if (scored != nullptr) {
      top = Json::object();
      for (const TokenLogprob& one : scored->top) {
        const double logprob = wire::json_number(one.logprob);
        top[text_of(one.id)] = logprob;
        ids.push_back({one.id, logprob});
      }
    }
    top_.push_back(std::move(top));
    top_ids_.push_back(std::move(ids));
  }
  bool empty() const { return tokens_.empty(); }
  // What was added since the last take().
  Json take() {
    Json out = {{"tokens", std::move(tokens_)},
                {"token_logprobs", std::move(logprobs_)},
                {"top_logprobs", std::move(top_)},
                {"text_offset", std::move(offsets_)}};
    if (with_ids_) out["top_token_ids"] = std::move(top_ids_);
    tokens_ = logprobs_ = top_ = top_ids_ = offsets_ = Json::array();
    return out;
  }

 private:
  std::string text_of(int32_t id) const {
    if (tokenizer_ == nullptr || id >= tokenizer_->size()) return cat("<", id, ">");
    return to_valid_utf8(tokenizer_->token_bytes(id));
  }
  const Tokenizer* tokenizer_;
  const bool with_ids_;
  size_t offset_ = 0;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(),
       top_ids_ = Json::array(), offsets_ = Json::array();
};

std::string next_id() {
  static std::atomic<uint64_t> counter{0};
  static const uint64_t start = draw_seed();
  return cat("cmpl-", std::hex, start, "-", counter.fetch_add(1));
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One answer: its choices one after the other, as JSON or as events.
class Completion {
 public:
  Completion(CompletionModel model, CompletionRequest request)
      : model_(std::move(model)),
        request_(std::move(request)),
        id_(next_id()),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  std::string whole(const std::function<bool()>& gone) {
    Json choices = Json::array();
    for_each_choice(
        [&](int index, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
          if (gone && gone()) return false;
          const auto forward = model_.open();
          const Generated result =
              generate(*forward, *model_.config, model_.tokenizer, prompt, options,
                       [&](std::string_view, const ScoredToken*) { return !gone || !gone(); });
          LogprobLists lists(model_.tokenizer, request_.return_token_ids);
          if (request_.echo) add_prompt(lists, prompt, result);
          for (const ScoredToken& token : result.scored) lists.add(token.id, &token);
          Json choice = {
              {"index", index},
              {"text", (request_.echo ? prompt_text(prompt) : "") + to_valid_utf8(result.text)},
              {"logprobs", options.logprobs >= 0 ? lists.take() : Json()},
              {"finish_reason", result.finish_reason}};
          if (request_.return_token_ids) {
            choice["prompt_token_ids"] = prompt;
            choice["token_ids"] = result.tokens;
          }
          choices.push_back(std::move(choice));
          count(index, prompt, result);
          return result.finish_reason != "cancelled";
        });
    Json json = envelope(std::move(choices));
    json["usage"] = usage();
    return dump(json) + "\n";
  }

  void stream(http::Sink& sink) {
    for_each_choice(
        [&](int index, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
          const auto forward = model_.open();
          LogprobLists lists(model_.tokenizer, request_.return_token_ids);
          bool first = true;
          std::vector<int32_t> ids;  // whose text is in the next chunk
          // Each chunk's text is made of whole characters; anything else would not be JSON.
          const auto send = [&](std::string text, const char* finish) {
            Json choice = {
                {"index", index},
                {"text", to_valid_utf8(text)},
                {"logprobs", options.logprobs >= 0 && !lists.empty() ? lists.take() : Json()},
                {"finish_reason", finish == nullptr ? Json() : Json(finish)}};
            if (request_.return_token_ids) {
              if (first) choice["prompt_token_ids"] = prompt;
              choice["token_ids"] = ids;
            }
            first = false;
            ids.clear();
            Json chunk = envelope(Json::array({std::move(choice)}));
            if (request_.include_usage) chunk["usage"] = nullptr;
            return sink.write(http::sse_event(dump(chunk)));
          };
          const bool score_first = options.score_prompt;
          if (request_.echo && !score_first && !send(prompt_text(prompt), nullptr)) return false;
          Generated result;
          if (score_first) {
            // The prompt's scores are known only at the end of its pass: all of this choice in one
            // go.
            result =
                generate(*forward, *model_.config, model_.tokenizer, prompt, options,
                         [&](std::string_view, const ScoredToken*) { return !sink.client_gone(); });
            add_prompt(lists, prompt, result);
            for (const ScoredToken& token : result.scored) lists.add(token.id, &token);
            ids = result.tokens;
            if (!send(prompt_text(prompt) + result.text, nullptr)) return false;
          } else {
            result = generate(*forward, *model_.config, model_.tokenizer, prompt, options,
                              [&](std::string_view text, const ScoredToken* token) {
                                if (token != nullptr) {
                                  ids.push_back(token->id);
                                  if (options.logprobs >= 0) lists.add(token->id, token);
                                }
                                if (text.empty() && !request_.return_token_ids)
                                  return !sink.client_gone();
                                return send(std::string(text), nullptr);
                              });
          }
          count(index, prompt, result);
          if (result.finish_reason == "cancelled") return false;
          return send("", result.finish_reason.c_str());
        });
    if (request_.include_usage) {
      Json chunk = envelope(Json::array());
      chunk["usage"] = usage();
      sink.write(http::sse_event(dump(chunk)));
    }
    sink.write(http::sse_done());
  }

 private:
  template <typename Body>
  void for_each_choice(const Body& body) {
    int index = 0;
    for (const auto& prompt : request_.prompts) {
      for (int i = 0; i < request_.choices; ++i) {
        GenerateOptions options = request_.options;
        options.sampling.seed += static_cast<uint64_t>(i);  // the first choice is that of n = 1
        if (!body(index++, prompt, options)) return;
      }
    }
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

  // A prompt counts once, whatever n is.
  void count(int index, const std::vector<int32_t>& prompt, const Generated& result) {
    if (index % request_.choices == 0) prompt_tokens_ += prompt.size();
    completion_tokens_ += result.tokens.size();
  }

  Json usage() const {
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", completion_tokens_},
            {"total_tokens", prompt_tokens_ + completion_tokens_}};
  }

  Json envelope(Json choices) const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_.id},
            {"choices", std::move(choices)}};
  }

  CompletionModel model_;
  CompletionRequest request_;
  std::string id_;
  int64_t created_;
  size_t prompt_tokens_ = 0, completion_tokens_ = 0;
};

}  // namespace

http::Response completions(const http::Request& request, const FindModel& find) {
  Fields fields(request.body);
  CompletionModel model = find(fields.text_or("model", ""));
  CompletionRequest parsed = read_request(fields, model);
  parsed.options.sampling.validate();
  const bool stream = parsed.stream;
  auto completion = std::make_shared<Completion>(std::move(model), std::move(parsed));
  if (!stream) return http::Response::json(200, completion->whole(request.client_gone));
  return http::Response::events([completion](http::Sink& sink) {
    try {
      completion->stream(sink);
    } catch (...) {
      // The status has gone out: the error is an event, and no [DONE] follows.
      sink.write(http::sse_event(http::error_response(http::current_exception_as_error()).body));
    }
  });
}

}  // namespace split::serve
