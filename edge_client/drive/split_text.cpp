#include "edge_client/drive/split_text.h"

#include "base/resources/clock.h"
#include "edge_client/split/retry.h"

namespace split::edge {
SplitText::SplitText(const SplitContext& run, std::span<const int32_t> prompt,
                     const GenerateOptions& options, SplitCounts& counts)
    : run_(run), prompt_(prompt.begin(), prompt.end()), options_(options), counts_(counts) {
  const int layers = run.model.config().layers;
  const Cut cut = options.score_prompt ? scored_cut(run.place.cut, layers) : run.place.cut;
  const bool stays = cut != run.place.cut;
  if (cut.is_cloud() && run.moving == nullptr) return;
  forward_.emplace(run.cloud, run.model, cut, stays ? nullptr : run.tail, run.retry, run.waiter,
                   counts, run.requester, stays ? nullptr : run.moving);
  loop_.emplace(run.model.config(), run.tokenizer, prompt, options,
                options.drafts.most == 0 && forward_->gives_top());
  if (run.opened != nullptr) take_up(*run.opened);
  if (run.root && !options.score_prompt) forward_->text_session()->share(*run.root);
  if (run.opened == nullptr && run.turns != nullptr && !options.score_prompt) {
    const SessionCacheUse& turns = *run.turns;
    if (auto taken = turns.kept.take(turns.owner, [&](const CachedSession& turn) {
          return forward_->text_session()->rows_of(turn, prompt_, turns.phases_alike);
        })) {
      forward_->text_session()->go_on_from(std::move(taken->turn), taken->rows);
    }
  }
  forward_->text_session()->expect(static_cast<uint32_t>(std::max(0, options.max_tokens)));
}

void SplitText::keep() {
  if (!forward_) return;
  if (run_.turns == nullptr) return forward_->leave_rows();
  CachedSession turn = forward_->keep();
  turn.owner = run_.turns->owner;
  turn.keeps = run_.turns->keeps;
  run_.turns->kept.put(std::move(turn));
}

void SplitText::take_up(const EarlyText& opened) {
  const OnText on_text = [&](std::string_view text, const ScoredToken*) {
    early_ += text;
    return true;
  };
  for (const ScoredToken& token : opened.tokens) {
    if (!loop_->ended()) loop_->token(token, on_text);
  }
  if (opened.finish_reason == FinishReason::kStop && !loop_->ended()) {
    loop_->token({run_.model.config().end_of_text, 0, {}}, on_text);
  }
  count_on_cloud(opened.tokens.size());
  counts_.work.heads += opened.tokens.size();
  counts_.work.cloud_heads += opened.tokens.size();
  forward_->text_session()->adopt(opened.session, loop_->ids(), prompt_.size(), opened.lost);
  const auto layers = static_cast<uint64_t>(run_.model.config().layers);
  if (!opened.tokens.empty()) counts_.spare(counts_.cached_rows, layers);
}

// Takes the tokens that the cloud has for the text, or the next one.
bool SplitText::next(const OnText& read) {
  const Timed timed(counts_.ms);
  TextObserver* const observer = run_.observer;
  const OnText on_text = [&](const TextPiece& piece, const ScoredToken* token) {
    if (token != nullptr && observer != nullptr) observer->token();
    return (!read || read(piece, token)) && (observer == nullptr || !observer->stops());
  };
  if (!loop_) {
    ++counts_.trips;
    whole_ = run_.cloud.complete(run_.tokenizer, prompt_, options_, on_text, counts_);
    const size_t tokens = whole_.tokens.size(), rows = count_on_cloud(tokens);
    const auto layers = static_cast<size_t>(run_.model.config().layers);
    counts_.work += {rows, rows * layers, tokens, tokens};
    counts_.spare(counts_.cached_rows, layers);
    return ended();
  }
  if (!early_.empty()) on_text(TextPiece(std::exchange(early_, {})), nullptr);
  if (loop_->ended()) return ended();
  const std::span<const int32_t> known = loop_->ids();
  const size_t pending = known.size() > prompt_.size() ? 1 : 0;
  if (pending > 0 && !(rows_ && rows_->has(*loop_))) {
    forward_->meet(static_cast<uint32_t>(known.size()) - 1);
  }
  if (forward_->text_session()->on_cloud()) {
    rows_.reset();
    forward_->stream(*loop_, prompt_.size(), options_, on_text);
  } else {
    if (!rows_) {
      rows_.emplace(*forward_, run_.model.config(), known.first(known.size() - pending),
                    options_.drafts);
    }
    do {  // a piece of a scored prompt yields no token
      const uint64_t drafted = rows_->drafted(), accepted = rows_->accepted();
      if (!rows_->has(*loop_)) rows_->give(forward_->run(rows_->step(*loop_)));
      draw(rows_->take(*loop_), on_text);
      counts_.drafted += rows_->drafted() - drafted;
      counts_.accepted += rows_->accepted() - accepted;
    } while (!loop_->ended() && loop_->wanted().phase == Phase::kPrompt);
  }
  if (!loop_->ended()) return true;
  forward_->text_session()->end(static_cast<uint32_t>(loop_->ids().size()));
  return ended();
}

// Tells the observer of the end. Returns false.
bool SplitText::ended() const {
  const bool full = loop_ ? loop_->left() == 0 : whole_.finish_reason == FinishReason::kLength;
  if (run_.observer != nullptr) run_.observer->ended(full);
  return false;
}

// Counts the rows of the prompt and of all tokens but the last as the cloud's, and returns their
// number.
size_t SplitText::count_on_cloud(size_t tokens) {
  const size_t rows = prompt_.size() + std::max<size_t>(1, tokens) - 1;
  counts_.cloud_layer_rows += rows * static_cast<size_t>(run_.model.config().layers);
  return rows;
}

// Feeds the loop, and counts this machine's time for a token, without the reader's.
void SplitText::draw(std::span<const float> logits, const OnText& on_text) {
  const size_t heads = loop_->wanted().wanted_count();
  counts_.work.heads += heads;
  if (!forward_->text_session()->head_here()) counts_.work.cloud_heads += heads;
  std::optional<Timed> drawing(counts_.edge_ms);
  loop_->logits(logits, [&](const TextPiece& text, const ScoredToken* token) {
    drawing.reset();
    const bool goes_on = on_text(text, token);
    drawing.emplace(counts_.edge_ms);
    return goes_on;
  });
}

std::vector<float> final_states(const SplitContext& run, std::span<const int32_t> tokens,
                                SplitCounts& counts) {
  const Timed timed(counts.ms);
  const SequenceRows rows{.range = {.to = Point::norm()}, .tokens = tokens, .wanted = Wanted::kAll};
  if (!run.place.cut.is_cloud()) {
    SplitForward forward(run.cloud, run.model, run.place.cut, run.tail, run.retry, run.waiter,
                         counts, run.requester);
    const std::span<const float> states = forward.run(rows);
    return {states.begin(), states.end()};
  }
  ++counts.steps;
  const Send asked{Send::kForward, {}, rows, &counts.traffic};
  std::vector<float> states = retried(run.retry, run.waiter, [&] { return run.cloud.ask(asked); });
  const size_t layer_rows = tokens.size() * static_cast<size_t>(run.model.config().layers);
  counts.cloud_layer_rows += layer_rows;
  counts.work += {tokens.size(), layer_rows, 0, 0};
  return states;
}

}  // namespace split::edge
