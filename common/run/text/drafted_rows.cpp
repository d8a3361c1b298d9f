#include "run/text/drafted_rows.h"

#include <algorithm>

namespace split {

DraftedRows::DraftedRows(const Forward& forward, const ModelConfig& config,
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

SequenceRows DraftedRows::step(const TextLoop& loop) {
  SequenceRows rows = loop.wanted();
  ids_.clear();
  // A prompt's rows are all known.
  if (!drafts_ || rows.phase == Phase::kPrompt) return rows;
  CHECK(rows.count() == 1 && loop.left() > 0);
  came_.push_back(rows.tokens[0]);
  drafts_->took(came_);
  came_.clear();
  DraftCost cost;
  for (size_t count = 1; count <= cost.edge_ms.size(); ++count)
    cost.edge_ms[count - 1] = times_.ms(count);
  if (forward_.asks_others()) cost.row_ms = DraftCost::kRowPrice * times_.ms(1);
  const size_t room = std::min<size_t>(loop.left(), forward_.most_rows(rows.past)) - 1;
  const std::span<const int32_t> guesses =
      drafts_->next({.most = std::min(options_.most, room)}, options_.always ? nullptr : &cost);
  ids_.push_back(rows.tokens[0]);
  ids_.insert(ids_.end(), guesses.begin(), guesses.end());
  rows.tokens = ids_;
  rows.wanted = Wanted::kAll;
  row_ = ids_.size();  // until they are given
  drafted_ += guesses.size();
  start_ = std::chrono::steady_clock::now();
  return rows;
}

void DraftedRows::give(std::span<const float> logits) {
  rows_ = logits;
  row_ = 0;
  if (ids_.empty()) return;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start_;
  times_.add(ids_.size(), took.count());
}

std::span<const float> DraftedRows::take(const TextLoop& loop) {
  if (ids_.empty()) return rows_;
  if (row_ > 0) {  // a right guess
    came_.push_back(loop.ids().back());
    ++accepted_;
  }
  return rows_.subspan(row_++ * vocab_, vocab_);
}

}  // namespace split
