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
      top_(!score_ && top && options.min_tokens == 0 &&
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
  result_.finish_reason = FinishReason::kLength;
  CHECK(options.generated < prompt.size());
  if (options.form != nullptr) state_ = options.form->start();
  for (const int32_t id : prompt.last(options.generated)) pieces_of(id);  // tokens given before
  const bool stopped = stops_.stopped() || (state_ && state_->over());
  if (stopped) result_.finish_reason = FinishReason::kStop;
  ended_ = stopped || (limit_ == 0 && !scores_prompt());
}

SequenceRows TextLoop::wanted() const {
  CHECK(!ended_);
  const bool scoring = fed_ < prompt_ && scores_prompt();
  const size_t due = history_.size() - fed_;
  return {.range = {.to = from_top() ? Point::top() : Point::head()},
          .past = static_cast<uint32_t>(fed_),
          .tokens = std::span(history_).subspan(fed_, scoring ? std::min(kScoreRows, due) : due),
          .phase = fed_ < prompt_ ? Phase::kPrompt : Phase::kGenerate,
          .wanted = scoring ? Wanted::kAll : Wanted::kLast};
}

// Scores a piece of the prompt: each row has the next token's log-probability.
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
  const int32_t id = from_top()
                         ? sample_top(logits, options_.sampling, history_.size())
                         : sample(logits, history_, options_.sampling, history_.size(), generated,
                                  mask == nullptr ? std::span<const uint8_t>() : *mask);
  const bool ends = stops_at(id);
  token(score_ && !ends ? scored(logits, id, options_.logprobs) : ScoredToken{id, 0, {}}, on_text);
}

void TextLoop::token(ScoredToken token, const OnText& on_text) {
  fed_ = history_.size();
  if (stops_at(token.id)) {
    result_.finish_reason = FinishReason::kStop;
    return finish(on_text);
  }
  if (score_) result_.scored.push_back(token);
  result_.tokens.push_back(token.id);
  history_.push_back(token.id);
  const TextForm::Pieces pieces = pieces_of(token.id);
  if (!emit(pieces, &token, on_text)) return;
  if (stops_.stopped()) {
    result_.finish_reason = FinishReason::kStop;
    ended_ = true;
  } else if (state_ && state_->over()) {
    result_.finish_reason = FinishReason::kStop;
    finish(on_text);
  } else if (result_.tokens.size() >= limit_) {
    finish(on_text);
  }
}

bool TextLoop::masks() const {
  return state_ && (options_.form->holds(*state_) || !options_.form->can_end(*state_));
}

// The ids that go on with the form's text, and the ids that end the text where it can end.
TextLoop::Mask TextLoop::allowed() const {
  const size_t written = options_.generated + result_.tokens.size();
  const bool early = !options_.ignore_end && written < static_cast<size_t>(options_.min_tokens);
  Mask mask = state_ ? options_.form->allowed(*state_) : nullptr;
  const bool may_end = !early && (!state_ || options_.form->can_end(*state_));
  if (options_.ignore_end || may_end == (mask == nullptr)) return mask;
  std::vector<uint8_t> changed =
      mask ? *mask : std::vector<uint8_t>(static_cast<size_t>(config_.vocab), 1);
  changed.resize(static_cast<size_t>(config_.vocab), 0);
  for (int32_t id = 0; id < config_.vocab; ++id) {
    if (stops_at(id)) changed[static_cast<size_t>(id)] = may_end ? 1 : 0;
  }
  return std::make_shared<const std::vector<uint8_t>>(std::move(changed));
}

// Adds the complete part of a piece. Stop strings are looked for in words, up to a call.
void TextLoop::add(TextForm::Pieces& out, TextForm::Piece piece) {
  const auto put = [&](TextPiece::Part part, std::string bytes) {
    if (part == TextPiece::kWords) bytes = stops_.push(bytes);
    if (!bytes.empty()) out.push_back({part, piece.call, std::move(bytes)});
  };
  if (part_ != piece.part) {
    put(part_, utf8_.flush());
    part_ = piece.part;
  }
  if (piece.part == TextPiece::kName) {
    if (std::string rest = stops_.flush(); !rest.empty()) {
      out.push_back({TextPiece::kWords, 0, std::move(rest)});
    }
    if (!stops_.stopped()) stops_ = StopStrings(options_.stop);
    ++result_.calls;
  }
  put(piece.part, utf8_.push(piece.bytes));
}

// The text complete with this id, behind all tokens before it. Another machine may have chosen it.
TextForm::Pieces TextLoop::pieces_of(int32_t id) {
  TextForm::Pieces pieces, out;
  if (state_) {
    const bool thinks = state_->thinks();
    options_.form->follow(*state_, id, pieces);
    if (thinks || state_->thinks()) ++result_.thought_tokens;
  } else if (stream_) {
    pieces.push_back({TextPiece::kWords, 0, std::string(stream_->push(id))});
  }
  for (TextForm::Piece& one : pieces) {
    if (!stops_.stopped()) add(out, std::move(one));
  }
  return out;
}

bool TextLoop::stops_at(int32_t id) const {
  if (options_.ignore_end) return false;
  return id == config_.end_of_text || std::ranges::find(config_.stops, id) != config_.stops.end();
}

// Returns whether the text goes on; it ends if on_text() says so.
bool TextLoop::emit(const TextForm::Pieces& pieces, const ScoredToken* token,
                    const OnText& on_text) {
  for (const TextForm::Piece& one : pieces) {
    if (one.part == TextPiece::kWords) result_.text += one.bytes;
  }
  if (stops_.stopped()) result_.stopped_by = options_.stop[*stops_.matched()].text;
  if (!on_text) return true;
  bool wanted = !pieces.empty() || token == nullptr || on_text(TextPiece(""), token);
  for (const TextForm::Piece& one : pieces) {
    wanted = wanted && on_text({one.part, one.call, one.bytes}, std::exchange(token, nullptr));
  }
  if (wanted) return true;
  result_.finish_reason = FinishReason::kCancelled;
  ended_ = true;
  return false;
}

void TextLoop::end(FinishReason reason, const OnText& on_text) {
  if (ended_) return;
  result_.finish_reason = reason;
  finish(on_text);
}

// Gives the held back text.
void TextLoop::finish(const OnText& on_text) {
  ended_ = true;
  TextForm::Pieces held, rest;
  if (state_) options_.form->finish(*state_, held);
  for (TextForm::Piece& one : held) add(rest, std::move(one));
  std::string tail = utf8_.flush();
  if (part_ == TextPiece::kWords) tail = stops_.push(tail);
  tail += stops_.flush();
  const auto last = static_cast<uint32_t>(part_ > TextPiece::kThought ? result_.calls - 1 : 0);
  if (!tail.empty()) rest.push_back({part_, last, std::move(tail)});
  if (stops_.stopped()) result_.finish_reason = FinishReason::kStop;
  emit(rest, nullptr, on_text);
}

}  // namespace split
