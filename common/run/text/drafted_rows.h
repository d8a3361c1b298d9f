// The rows that a TextLoop wants, over a Forward: with drafts, a step computes the rows behind the
// guesses too, and rows of right guesses need no other step. The time of past steps decides how
// many are sent. Knows no text and no stop.
#pragma once

#include <optional>
#include <vector>

#include "run/forward.h"
#include "run/text/drafts.h"
#include "run/text/text_loop.h"

namespace split {

// One thread at a time. `forward` and the memory outlive it.
class DraftedRows {
 public:
  DraftedRows(Forward& forward, const ModelConfig& config, std::span<const int32_t> prompt,
              const DraftOptions& options);
  ~DraftedRows();
  DraftedRows(const DraftedRows&) = delete;
  DraftedRows& operator=(const DraftedRows&) = delete;

  // Whether a guess was right, so that its row needs no step.
  bool has(const TextLoop& loop) const {
    return row_ < ids_.size() && ids_[row_] == loop.ids().back();
  }
  // The logits of loop.wanted(), until the next call. Throws the errors of Forward.
  std::span<const float> logits(const TextLoop& loop);

  // Guesses that were sent, and those that saved a step.
  uint64_t drafted() const { return drafted_; }
  uint64_t accepted() const { return accepted_; }

 private:
  std::span<const float> row() { return rows_.subspan(row_++ * vocab_, vocab_); }
  void step(const SequenceRows& wanted, size_t left);

  Forward& forward_;
  const size_t vocab_;
  const DraftOptions options_;
  std::optional<Drafts> drafts_;  // absent: one row a step
  DraftTimes times_;
  std::vector<int32_t> ids_;  // ids of the last step: the text's last one and the guesses
  std::span<const float> rows_;
  size_t row_ = 0;             // the next of its rows
  std::vector<int32_t> came_;  // ids since then
  uint64_t drafted_ = 0, accepted_ = 0;
};

}  // namespace split
