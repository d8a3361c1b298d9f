// The rows that a TextLoop wants, in steps of a Forward: with drafts, a step has the rows behind
// the guesses too, and rows of right guesses need no other step. The time of past steps decides how
// many are sent. Computes nothing; knows no text and no stop.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "run/forward.h"
#include "run/text/drafts.h"
#include "run/text/text_loop.h"

namespace split {

// One thread at a time. `forward` and the memory outlive it.
class DraftedRows {
 public:
  DraftedRows(const Forward& forward, const ModelConfig& config, std::span<const int32_t> prompt,
              const DraftOptions& options);
  ~DraftedRows();
  DraftedRows(const DraftedRows&) = delete;
  DraftedRows& operator=(const DraftedRows&) = delete;

  // Whether a guess was right, so that its row needs no step.
  bool has(const TextLoop& loop) const {
    return row_ < ids_.size() && ids_[row_] == loop.ids().back();
  }
  // The rows of the next step: loop.wanted(), and guesses behind them; until the next call.
  SequenceRows step(const TextLoop& loop);
  // Gives the step's logits, which stay valid until the next.
  void give(std::span<const float> logits);
  // The logits of loop.wanted(), which a step or a guess has given.
  std::span<const float> take(const TextLoop& loop);

  // Guesses that were sent, and those that saved a step.
  uint64_t drafted() const { return drafted_; }
  uint64_t accepted() const { return accepted_; }

 private:
  const Forward& forward_;
  const size_t vocab_;
  const DraftOptions options_;
  std::optional<Drafts> drafts_;  // absent: one row a step
  DraftTimes times_;
  std::vector<int32_t> ids_;  // ids of the last step: the text's last one and the guesses
  std::chrono::steady_clock::time_point start_;  // the step began
  std::span<const float> rows_;                  // its logits
  size_t row_ = 0;                               // the next of them
  std::vector<int32_t> came_;                    // ids since then
  uint64_t drafted_ = 0, accepted_ = 0;
};

}  // namespace split
