// The rows that a TextLoop wants, over a Forward: where drafts are asked for, a step computes the
// rows behind the guesses too, and the loop is given those whose guesses were right without another
// step. How many are sent follows from what steps took here. Knows no text and no stop.
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

  // Whether those are of a guess that was right, so that no step is needed for them.
  bool has(const TextLoop& loop) const {
    return row_ < ids_.size() && ids_[row_] == loop.ids().back();
  }
  // The logits of loop.wanted(), until the next call. Throws as Forward does.
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
  std::optional<Drafts> drafts_;  // none: a row a step
  DraftTimes times_;
  std::vector<int32_t> ids_;  // of the last step: the text's last one and the guesses
  std::span<const float> rows_;
  size_t row_ = 0;             // the next of its rows
  std::vector<int32_t> came_;  // since then
  uint64_t drafted_ = 0, accepted_ = 0;
};

}  // namespace split
