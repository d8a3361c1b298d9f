// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that a lost session,
// connection or server is answered by opening the session again and sending what it had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 never talks to the
// server. A flow (flow.h): whoever drives it asks the cloud, runs the jobs and waits.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/lane.h"

namespace split::edge {

// One thread at a time.
class Course {
 public:
  // `tail` has the stages from `cut` on, with the head, or without it (perhaps with the norm), and
  // then the head is asked of the cloud; null when there are no stages for this machine. What it
  // costs is added to `counts` as it comes.
  // With `moves` the cut may move: then the head is here.
  Course(const Model& model, int cut, Batcher* tail, const RetryOptions& retry, SplitCounts& counts,
         Requester requester = {}, const MoveOptions* moves = nullptr);
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  // Begins what Forward::run is asked for. The rows stay as they are until the flow is done; then
  // the results are there, until the next begin. The flow throws as Forward does.
  Flow& run(const SequenceRows& rows);
  // The same for the final norm's output of each token of a prompt, [tokens, C]; the tail has the
  // norm.
  Flow& norms(std::span<const int32_t> tokens);
  std::span<const float> results() const { return results_; }

  bool gives_top() const { return head_here() && sides_.tail->shard().host_copy_is_slow(); }
  // It waits for nothing any more: what fails from now on has failed.
  void interrupt() { sides_.interrupted = true; }
  // The sessions that are to be ended on the server, as far as they can be told; once.
  std::vector<std::string> leave();

  // The lane, whose flow is driven beside this one; null where the cut stays.
  Lane* lane() { return lane_ ? &*lane_ : nullptr; }
  const Lane* lane() const { return lane_ ? &*lane_ : nullptr; }
  int cut() const { return sides_.cut; }
  // Whether the tail has the stages from there on.
  bool has(int cut) { return sides_.tail->has(cut); }
  // Tokens out at the last step.
  uint32_t tokens_out() const { return out_; }
  // Another one where a flow that waits for others should look again.
  uint64_t version() const { return sides_.version; }

 private:
  bool head_here() const {
    return sides_.tail != nullptr && sides_.tail->shard().options().range.to == Point::head();
  }
  Task<void> run_rows(SequenceRows rows);
  Task<void> run_norms(std::span<const int32_t> tokens);
  // Waits before another try; or throws `error` when there is none.
  Task<void> pause(const RemoteError& error, bool passes, Backoff& backoff);
  Task<void> tail_is_free();
  Task<void> meet_lane();
  SequenceRows caught_up(SequenceRows rows);
  Task<void> pass(SequenceRows rows, float* out);
  // On the cloud:
  Task<void> open();
  Task<std::vector<float>> step(SequenceRows rows);
  Task<void> replay(uint32_t until);
  Task<void> recover(const RemoteError& error, Backoff& backoff);
  Task<std::vector<float>> from_cloud(SequenceRows rows, bool every);
  // Here:
  Task<void> advance(SequenceRows rows, float* out);
  Task<SequenceRows> for_tail(SequenceRows rows, bool every, std::vector<float>& hidden);
  Task<void> compute(Job& job);
  Task<void> run_tail(SequenceRows rows, float* out);
  Task<void> run_passing(SequenceRows rows, float* out);
  Task<void> restore_tail(uint32_t until);

  const RetryOptions retry_;
  SplitCounts& counts_;

  TwoSides sides_;
  Flow flow_;                 // behind the sides, as
  std::optional<Lane> lane_;  // is this
  uint32_t out_ = 0;
  std::vector<int32_t> with_lag_;  // tokens of a step that catches up
  std::vector<float> results_;
};

}  // namespace split::edge
