// The cloud's part of a text, as the text asks for it: its session is opened and gets the rows that
// it lacks, and a cloud that fails is asked again, until it answers, until the text can go on
// without it, or until nobody waits any more.
#pragma once

#include <optional>
#include <vector>

#include "edge_client/split/cut_mover.h"

namespace split::edge {

// The text is to go on without the cloud.
struct CloudLost {};

// One thread at a time. All that it is made of outlives it.
class CloudRows {
 public:
  CloudRows(SplitState& sides, const Flow& flow, const RetryOptions& retry, SplitCounts& counts)
      : sides_(sides), flow_(flow), retry_(retry), counts_(counts) {}

  CutMover* mover = nullptr;  // of the text, if it has one

  // Asks for what leaves the cloud's blocks, for every row or for those that are wanted; for the
  // rows before them first where the session lacks them. Throws CloudLost too.
  Task<std::vector<float>> ask(SequenceRows rows, bool every);

  // The rows before the first that it asks for are known here: the cloud gets their tokens, and
  // need not say what leaves its blocks.
  void begins_behind() { behind_ = true; }
  // Rows of the prompt that the cloud had.
  uint32_t cached() const { return cached_; }

  // For those who ask the cloud for something else: it is asked from now on, and answers.
  void is_asked() { asked_ = flow_.now(); }
  void answered();
  // Prepares for another try and waits for it, or throws `error`. True where the text goes on here,
  // alone.
  Task<bool> is_lost(const RemoteError& error, Backoff& backoff);
  // The cloud said what it wishes for, and how many guesses a step may have.
  void heed_load();
  // A session or a stream is begun again; it counts once the cloud answers.
  void begins_again() { begins_again_ = true; }
  bool is_again() const { return begins_again_; }
  // The cloud was lost before this text was known here.
  void was_lost() {
    losing_ = begins_again_ = true;
    ++counts_.losses;
  }
  // The text goes on without the cloud: that loss is survived.
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
  void goes_on();

  SplitState& sides_;
  const Flow& flow_;
  const RetryOptions& retry_;
  SplitCounts& counts_;
  Moment asked_{};                          // the cloud, which has not answered since, if it was to
  bool losing_ = false;                     // the cloud, and it is not back
  bool begins_again_ = false;               // a session or a stream
  uint32_t most_guesses_ = UINT32_MAX - 1;  // that the cloud takes in a step
  bool behind_ = false;
  uint32_t cached_ = 0;
};

}  // namespace split::edge
