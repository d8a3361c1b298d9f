#include "run/text/text_loop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "run/shard/shard.h"

namespace split {
namespace {

ScoredToken scored(std::span<const float> logits, int32_t id, int top) {
  return {id, logprob_of(logits, id),
          top > 0 ? top_logprobs(logits, top) : std::vector<TokenLogprob>()};
}

size_t limit_of(const ModelConfig& config, size_t prompt, const GenerateOptions& options) {
  CHECK(prompt > 0 && prompt <= static_cast<size_t>(config.context));
  const size_t room = static_cast<size_t>(config.context) - prompt;
  return std::min(room, static_cast<size_t>(std::max(0, options.max_tokens)));
}

}  // namespace

TextLoop::TextLoop(const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options, bool top)
    : config_(config),
      options_(options),
      score_(options.logprobs >= 0),
      prompt_(prompt.size()),
      limit_(limit_of(config, prompt.size(), options)),
      top_(!score_ && top && options.grammar == nullptr && options.min_tokens == 0 &&
           top_suffices(options.sampling,
                        std::min<size_t>(kTopLogits, static_cast<size_t>(config.vocab)))),
      stops_(options.stop),
      history_(prompt.begin(), prompt.end()) {
  options.sampling.validate();
  // The text goes on behind the prompt's: its first space stays.
  if (tokenizer != nullptr) stream_.emplace(*tokenizer, !options.ignore_end, true);
  if (tokenizer == nullptr && !options.stop.empty()) {
    throw Error(ErrorKind::kInput,
                "[generate] stop strings need a tokenizer, and the model has none", "stop");
  }
  result_.finish_reason = "length";
  CHECK(options.generated < prompt.size());
  if (options.grammar != nullptr) place_ = options.grammar->start();
  for (const int32_t id : prompt.last(options.generated)) {  // that was given before
    text_of(id);
    follow(id);
  }
  const bool stopped = stops_.stopped() || Grammar::must_end(place_);
  if (stopped) result_.finish_reason = "stop";
  ended_ = stopped || (limit_ == 0 && !scores_prompt());
}

SequenceRows TextLoop::wanted() const {
  CHECK(!ended_);
  const bool scoring = fed_ < prompt_ && scores_prompt();
  const size_t due = history_.size() - fed_;
  return {.range = {.to = top_ ? Point::top() : Point::head()},
          .past = static_cast<uint32_t>(fed_),
          .tokens = std::span(history_).subspan(fed_, scoring ? std::min(kScoreRows, due) : due),
          .phase = fed_ < prompt_ ? Phase::kPrompt : Phase::kGenerate,
          .wanted = scoring ? Wanted::kAll : Wanted::kLast};
}

// Those of a piece of the prompt: each row says how likely the next token was.
void TextLoop::score_rows(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(config_.vocab);
  for (size_t row = 0; row * vocab < logits.size() && fed_ + row + 1 < prompt_; ++row) {
    result_.scored_prompt.push_back(
        scored(logits.subspan(row * vocab, vocab), history_[fed_ + row + 1], options_.logprobs));
  }
}

void TextLoop::logits(std::span<const float> logits, const OnText& on_text) {
  if (fed_ < prompt_ && scores_prompt()) {
    score_rows(logits);
    fed_ += wanted().count();
    if (fed_ < prompt_) return;
    logits = logits.last(static_cast<size_t>(config_.vocab));
    if (limit_ == 0) return finish(on_text);
  }
  const Mask mask = allowed();
  const size_t generated = options_.generated + result_.tokens.size();
  const int32_t id = top_ ? sample_top(logits, options_.sampling, history_.size())
                          : sample(logits, history_, options_.sampling, history_.size(), generated,
                                   mask == nullptr ? std::span<const uint8_t>() : *mask);
  const bool ends = stops_at(id);
  token(score_ && !ends ? scored(logits, id, options_.logprobs) : ScoredToken{id, 0, {}}, on_text);
}

void TextLoop::token(ScoredToken token, const OnText& on_text) {
  fed_ = history_.size();
  if (stops_at(token.id)) {
    result_.finish_reason = "stop";
    return finish(on_text);
  }
  if (score_) result_.scored.push_back(token);
  result_.tokens.push_back(token.id);
  history_.push_back(token.id);
  follow(token.id);
  if (!emit(text_of(token.id), &token, on_text)) return;
  if (stops_.stopped()) {
    result_.finish_reason = "stop";
    ended_ = true;
  } else if (Grammar::must_end(place_)) {
    result_.finish_reason = "stop";
    finish(on_text);
  } else if (result_.tokens.size() >= limit_) {
    finish(on_text);
  }
}

// The ids that go on with the grammar's text, and those that end the text where it can end.
TextLoop::Mask TextLoop::allowed() const {
  const size_t written = options_.generated + result_.tokens.size();
  const bool early = !options_.ignore_end && written < static_cast<size_t>(options_.min_tokens);
  if (options_.grammar == nullptr) {
    if (!early) return nullptr;
    std::vector<uint8_t> but_ends(static_cast<size_t>(config_.vocab), 1);
    for (int32_t id = 0; id < config_.vocab; ++id) {
      if (stops_at(id)) but_ends[static_cast<size_t>(id)] = 0;
    }
    return std::make_shared<const std::vector<uint8_t>>(std::move(but_ends));
  }
  Mask mask = options_.grammar->allowed(place_);
  if (options_.ignore_end || early || !Grammar::can_end(place_)) return mask;
  std::vector<uint8_t> with_ends = *mask;
  with_ends.resize(static_cast<size_t>(config_.vocab), 0);
  for (int32_t id = 0; id < config_.vocab; ++id) {
    if (stops_at(id)) with_ends[static_cast<size_t>(id)] = 1;
  }
  return std::make_shared<const std::vector<uint8_t>>(std::move(with_ends));
}

// Somebody else may have chosen the id.
void TextLoop::follow(int32_t id) {
  if (options_.grammar == nullptr) return;
  place_ = options_.grammar->after(place_, id);
  if (place_.empty()) {
    throw Error(ErrorKind::kInput, cat("[generate] token ", id, " is not of the response_format"),
                "response_format");
  }
}

// Returns what is certain of the text, behind all tokens before this one.
std::string TextLoop::text_of(int32_t id) {
  if (!stream_) return {};
  return stops_.push(utf8_.push(stream_->push(id)));
}

bool TextLoop::stops_at(int32_t id) const {
  if (options_.ignore_end) return false;
  return id == config_.end_of_text || std::ranges::find(config_.stops, id) != config_.stops.end();
}

// Returns whether the text goes on; it ends where nobody wants it.
bool TextLoop::emit(std::string text, const ScoredToken* token, const OnText& on_text) {
  result_.text += text;
  if (!on_text || on_text(text, token)) return true;
  result_.finish_reason = "cancelled";
  ended_ = true;
  return false;
}

// Gives what was held back.
void TextLoop::finish(const OnText& on_text) {
  ended_ = true;
  std::string rest = stops_.push(utf8_.flush());
  rest += stops_.flush();
  if (stops_.stopped()) result_.finish_reason = "stop";
  if (!rest.empty()) emit(std::move(rest), nullptr, on_text);
}

}  // namespace split
