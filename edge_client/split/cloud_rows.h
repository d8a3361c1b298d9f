// The cloud's part of a text, as the text asks for it: opens its session, sends the rows that it
// lacks, and retries until the cloud answers, the text can go on without it, or nobody waits any
// more.
#pragma once

#include <optional>
#include <vector>

#include "edge_client/split/cut_mover.h"

namespace split::edge {

// Thrown where the text goes on without the cloud.
struct CloudLost {};

// One thread at a time. All that it is made of outlives it.
class CloudRows {
 public:
  CloudRows(SplitState& sides, const Flow& flow, const RetryOptions& retry, SplitCounts& counts)
      : sides_(sides), flow_(flow), retry_(retry), counts_(counts) {}

  CutMover* mover = nullptr;  // the text's; null if its cut stays

  // Returns the output of the cloud's blocks, for every row or for the wanted ones. Sends the rows
  // before them first if the session lacks them. Throws CloudLost too.
  Task<std::vector<float>> ask(SequenceRows rows, bool every);

  // Marks the rows before the first request as known here: the cloud gets their tokens and need not
  // return their hidden states.
  void begins_behind() { behind_ = true; }
  // Prompt rows that the cloud had in its cache.
  uint32_t cached() const { return cached_; }

  // For other requests of the text: marks that one begins, or was answered.
  void is_asked() { asked_ = flow_.now(); }
  void answered();
  // Waits before another try, or throws `error`. Returns true if the text goes on here, alone.
  Task<bool> is_lost(const RemoteError& error, Backoff& backoff);
  // Takes over the cloud's wishes and how many guesses a step may have.
  void heed_load();
  // Marks a session or a stream as a replay, which counts once the cloud answers.
  void begins_again() { begins_again_ = true; }
  bool is_again() const { return begins_again_; }
  // Notes a loss of the cloud from before this text was known here.
  void was_lost() {
    losing_ = begins_again_ = true;
    ++counts_.losses;
  }
  // Notes that the text goes on without the cloud: it survived that loss.
  void is_left() {
    begins_again_ = false;
    goes_on();
  }

  // The lowest cut from which the text could go on here.
  std::optional<int> can() const { return mover != nullptr ? mover->can() : std::nullopt; }
  // Rows that the cloud takes in a generated step.
  uint32_t most_rows() const { return 1 + most_guesses_; }

 private:
  SequenceRows next_of(const SequenceRows& rows, uint32_t there) const;
  Moment lost_at() const;
  AfterLoss after(const RemoteError& error) const;
  void goes_on();

  SplitState& sides_;
  const Flow& flow_;
  const RetryOptions& retry_;
  SplitCounts& counts_;
  Moment asked_{};                          // start of the pending request, until it is answered
  bool losing_ = false;                     // a loss of the cloud is not over
  bool begins_again_ = false;               // a session or a stream
  uint32_t most_guesses_ = UINT32_MAX - 1;  // guesses that the cloud takes in a step
  bool behind_ = false;
  uint32_t cached_ = 0;
};

}  // namespace split::edge
