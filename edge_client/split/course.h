// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that a lost session,
// connection or server is answered by opening the session again and sending what it had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 never talks to the
// server. A flow (flow.h): whoever drives it asks the cloud, runs the jobs and waits.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/backoff.h"
#include "edge_client/split/flow.h"
#include "run/sequence.h"

namespace split::edge {

// One thread at a time.
class Course {
 public:
  // `tail` has the stages from `cut` on, with the head, or without it (perhaps with the norm), and
  // then the head is asked of the cloud; null when there are no stages for this machine. What it
  // costs is added to `counts` as it comes.
  Course(const Model& model, int cut, Batcher* tail, const RetryOptions& retry, SplitCounts& counts,
         Requester requester = {});
  ~Course();
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  // Begins what Forward::run is asked for. The rows stay as they are until the flow is done; then
  // the results are there, until the next begin. The flow throws as Forward does.
  Flow& run(const SequenceRows& rows);
  // The same for the final norm's output of each token of a prompt, [tokens, C]; the tail has the
  // norm.
  Flow& norms(std::span<const int32_t> tokens);
  std::span<const float> results() const { return results_; }

  bool gives_top() const { return head_here() && tail_->shard().host_copy_is_slow(); }
  // It waits for nothing any more: what fails from now on has failed.
  void interrupt() { interrupted_ = true; }
  // The session that is to be ended on the server, if there is one that can be told; once.
  std::optional<std::string> leave();

 private:
  bool head_here() const {
    return tail_ != nullptr && tail_->shard().options().range.to == Point::head();
  }
  size_t channels() const { return static_cast<size_t>(model_.config().channels); }
  Task<void> run_rows(SequenceRows rows);
  Task<void> run_norms(std::span<const int32_t> tokens);
  // Waits before another try; or throws `error` when there is none.
  Task<void> pause(const RemoteError& error, bool passes, Backoff& backoff);
  // On the cloud:
  StageRange cloud_range() const { return {.to = cut_}; }
  Task<void> open();
  Task<std::vector<float>> step(SequenceRows rows);
  Task<void> replay(uint32_t until);
  Task<void> recover(const RemoteError& error, Backoff& backoff);
  Task<std::vector<float>> from_cloud(SequenceRows rows, bool every);
  // Here:
  Task<void> advance(SequenceRows rows, float* out);
  Task<SequenceRows> for_tail(SequenceRows rows, bool every, std::vector<float>& hidden);
  Task<void> run_tail(SequenceRows rows, float* out);
  Task<void> restore_tail(uint32_t until);

  const Model& model_;
  const int cut_;
  Batcher* const tail_;
  const RetryOptions retry_;
  const Requester requester_;  // of the tail's jobs
  SplitCounts& counts_;

  Flow flow_;
  bool interrupted_ = false;
  std::string session_;  // 32 hex digits
  bool open_ = false;    // on the server, as far as we know
  bool reachable_ = true;
  uint32_t cloud_rows_ = 0;  // that the session surely has
  SequenceHistory history_;
  SequenceId sequence_ = 0;  // of the tail
  std::vector<float> results_;
};

}  // namespace split::edge
