#include "run/text/drafted_rows.h"

#include <algorithm>
#include <chrono>

namespace split {

DraftedRows::DraftedRows(Forward& forward, const ModelConfig& config,
                         std::span<const int32_t> prompt, const DraftOptions& options)
    : forward_(forward), vocab_(static_cast<size_t>(config.vocab)), options_(options) {
  if (options.most == 0) return;
  drafts_.emplace(prompt, options.memory, options.drawn);
  if (options.memory != nullptr) times_ = options.memory->times();
}

DraftedRows::~DraftedRows() {
  if (!drafts_) return;
  if (!came_.empty()) drafts_->took(came_);
  if (options_.memory != nullptr) options_.memory->keep(times_);
}

std::span<const float> DraftedRows::logits(const TextLoop& loop) {
  const SequenceRows wanted = loop.wanted();
  // A prompt's rows are all known.
  if (!drafts_ || wanted.phase == Phase::kPrompt) return forward_.run(wanted);
  came_.insert(came_.end(), wanted.tokens.begin(), wanted.tokens.end());
  if (has(loop)) {
    ++accepted_;
    return row();
  }
  drafts_->took(came_);
  came_.clear();
  step(wanted, loop.left());
  return row();
}

// Runs a step with as many guesses as the text has room for behind its next token.
void DraftedRows::step(const SequenceRows& wanted, size_t left) {
  CHECK(wanted.count() == 1 && left > 0);
  DraftCost cost;
  for (size_t rows = 1; rows <= cost.edge_ms.size(); ++rows)
    cost.edge_ms[rows - 1] = times_.ms(rows);
  if (forward_.asks_others()) cost.row_ms = DraftCost::kRowPrice * times_.ms(1);
  const size_t room = std::min<size_t>(left, forward_.most_rows(wanted.past)) - 1;
  const std::span<const int32_t> guesses =
      drafts_->next({.most = std::min(options_.most, room)}, options_.always ? nullptr : &cost);
  ids_.assign(wanted.tokens.begin(), wanted.tokens.end());
  ids_.insert(ids_.end(), guesses.begin(), guesses.end());
  SequenceRows rows = wanted;
  rows.tokens = ids_;
  rows.wanted = Wanted::kAll;
  const auto start = std::chrono::steady_clock::now();
  rows_ = forward_.run(rows);
  times_.add(
      ids_.size(),
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  row_ = 0;
  drafted_ += guesses.size();
}

}  // namespace split
