#include "run/generate.h"

#include <algorithm>
#include <utility>

namespace split {
namespace {

ScoredToken scored(std::span<const float> logits, int32_t id, int top) {
  return {id, logprob_of(logits, id),
          top > 0 ? top_logprobs(logits, top) : std::vector<TokenLogprob>()};
}

}  // namespace

void check_prompt(const ModelConfig& config, std::vector<int32_t>& ids) {
  if (ids.empty()) {
    if (config.end_of_text < 0 || config.end_of_text >= config.vocab) {
      throw Error(ErrorKind::kInput,
                  "[prompt] expected at least one token: the model has no <|endoftext|>", "prompt");
    }
    ids.push_back(config.end_of_text);
  }
  if (ids.size() > static_cast<size_t>(config.context)) {
    throw Error(ErrorKind::kInput,
                cat("[prompt] expected at most ", config.context, " tokens, got ", ids.size()),
                "prompt");
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= config.vocab) {
      throw Error(ErrorKind::kInput,
                  cat("[prompt] token id: expected 0..", config.vocab - 1, ", got ", id), "prompt");
    }
  }
}

std::vector<int32_t> prompt_ids(const ModelConfig& config, const Tokenizer* tokenizer,
                                std::string_view text, bool special) {
  if (tokenizer == nullptr && !text.empty()) {
    throw Error(ErrorKind::kInput, "[prompt] the model has no tokenizer: expected token ids",
                "prompt");
  }
  // Encodes nothing that cannot fit: that takes many times its size.
  if (text.size() > static_cast<size_t>(config.context)) {
    const size_t fewest = text.size() / tokenizer->longest();
    if (fewest > static_cast<size_t>(config.context)) {
      throw Error(ErrorKind::kInput,
                  cat("[prompt] expected at most ", config.context, " tokens, got a text of ",
                      text.size(), " bytes, which has at least ", fewest),
                  "prompt");
    }
  }
  std::vector<int32_t> ids;
  if (!text.empty()) ids = tokenizer->encode(text, special);
  check_prompt(config, ids);
  return ids;
}

namespace {

size_t limit_of(const ModelConfig& config, size_t prompt, const GenerateOptions& options) {
  CHECK(prompt > 0 && prompt <= static_cast<size_t>(config.context));
  const size_t room = static_cast<size_t>(config.context) - prompt;
  return std::min(room, static_cast<size_t>(std::max(0, options.max_tokens)));
}

}  // namespace

Generation::Generation(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                       std::span<const int32_t> prompt, const GenerateOptions& options)
    : forward_(forward),
      config_(config),
      tokenizer_(tokenizer),
      options_(options),
      score_(options.logprobs >= 0),
      limit_(limit_of(config, prompt.size(), options)),
      top_(!score_ && forward.gives_top() &&
           top_suffices(options.sampling,
                        std::min<size_t>(kTopLogits, static_cast<size_t>(config.vocab)))),
      stops_(options.stop),
      history_(prompt.begin(), prompt.end()) {
  options.sampling.validate();
  if (tokenizer == nullptr && !options.stop.empty()) {
    throw Error(ErrorKind::kInput,
                "[generate] stop strings need a tokenizer, and the model has none", "stop");
  }
  result_.finish_reason = "length";
}

// Returns logits, or [2, K] with `top_`: of the last token, until the next step.
std::span<const float> Generation::step(uint32_t past, std::span<const int32_t> tokens,
                                        Phase phase) {
  return forward_.run({.range = {.to = top_ ? Point::top() : Point::head()},
                       .past = past,
                       .tokens = tokens,
                       .phase = phase});
}

std::span<const float> Generation::run_prompt() {
  const std::span<const int32_t> prompt(history_);
  if (!score_ || !options_.score_prompt) {
    return limit_ > 0 ? step(0, prompt, Phase::kPrompt) : std::span<const float>();
  }
  const auto vocab = static_cast<size_t>(config_.vocab);
  std::span<const float> logits;
  for (size_t at = 0; at < prompt.size(); at += kScoreRows) {
    const auto slice = prompt.subspan(at, std::min(kScoreRows, prompt.size() - at));
    const auto rows =
        forward_.run({.past = static_cast<uint32_t>(at), .tokens = slice, .wanted = Wanted::kAll});
    for (size_t i = 0; i < slice.size() && at + i + 1 < prompt.size(); ++i) {
      result_.scored_prompt.push_back(
          scored(rows.subspan(i * vocab, vocab), prompt[at + i + 1], options_.logprobs));
    }
    logits = rows.last(vocab);
  }
  return logits;
}

bool Generation::emit(std::string text, const ScoredToken* token, const OnText& on_text) {
  result_.text += text;
  if (!on_text || on_text(text, token)) return true;
  result_.finish_reason = "cancelled";
  return false;
}

// Gives what was held back.
bool Generation::finish(const OnText& on_text) {
  std::string rest = stops_.push(utf8_.flush());
  rest += stops_.flush();
  if (stops_.stopped()) result_.finish_reason = "stop";
  if (!rest.empty()) emit(std::move(rest), nullptr, on_text);
  return false;
}

bool Generation::next(const OnText& on_text) {
  if (ended_) return false;
  ended_ = true;  // unless there is more to make
  std::span<const float> logits;
  if (!std::exchange(begun_, true)) {
    logits = run_prompt();
  } else if (result_.tokens.size() < limit_) {
    logits = step(static_cast<uint32_t>(history_.size()) - 1, std::span(&history_.back(), 1),
                  Phase::kGenerate);
  }
  if (result_.tokens.size() >= limit_) return finish(on_text);
  const int32_t id = top_ ? sample_top(logits, options_.sampling, history_.size())
                          : sample(logits, history_, options_.sampling, history_.size());
  if (id == config_.end_of_text && !options_.ignore_end) {
    result_.finish_reason = "stop";
    return finish(on_text);
  }
  ScoredToken token{id, 0, {}};
  if (score_) {
    token = scored(logits, id, options_.logprobs);
    result_.scored.push_back(token);
  }
  result_.tokens.push_back(id);
  history_.push_back(id);
  std::string text;
  if (tokenizer_ != nullptr && id < tokenizer_->size()) {
    text = stops_.push(utf8_.push(tokenizer_->token_bytes(id)));
  }
  if (!emit(std::move(text), &token, on_text)) return false;
  if (stops_.stopped()) {
    result_.finish_reason = "stop";
    return false;
  }
  ended_ = false;
  return true;
}

Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text) {
  Generation text(forward, config, tokenizer, prompt, options);
  while (text.next(on_text)) continue;
  return text.take();
}

}  // namespace split
