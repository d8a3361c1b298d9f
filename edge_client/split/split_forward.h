// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that a lost session,
// connection or server is answered by opening the session again and sending what it had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 never talks to the
// server.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/cloud_link.h"
#include "edge_client/split/retry.h"
#include "run/forward.h"

namespace split::edge {

// One thread at a time.
class SplitForward : public Forward {
 public:
  // `tail` has the stages from `cut` on, with the head, or without it (perhaps with the norm), and
  // then the head is asked of the cloud; null when there are no stages for this machine. What it
  // costs is added to `counts` as it comes.
  SplitForward(CloudLink& cloud, const Model& model, int cut, Batcher* tail,
               const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
               Requester requester = {});
  ~SplitForward() override;
  SplitForward(const SplitForward&) = delete;
  SplitForward& operator=(const SplitForward&) = delete;

  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return head_here() && tail_->shard().host_copy_is_slow(); }
  // Returns the final norm's output for each token of a prompt, [tokens, C]; the tail has the norm.
  std::vector<float> norms(std::span<const int32_t> tokens);

  // Ends the session on the server, if there is one.
  void close() noexcept;

 private:
  bool head_here() const {
    return tail_ != nullptr && tail_->shard().options().range.to == Point::head();
  }
  // On the cloud:
  StageRange cloud_range() const { return {.to = cut_}; }
  void open();
  std::vector<float> step(const SequenceRows& rows);
  void replay(uint32_t until);
  void recover(const RemoteError& error, Retry& retry);
  std::vector<float> from_cloud(SequenceRows rows, bool every);
  // Here:
  void advance(const SequenceRows& rows, float* out);
  SequenceRows for_tail(SequenceRows rows, bool every, std::vector<float>& hidden);
  void run_tail(const SequenceRows& rows, float* out);
  void restore_tail(uint32_t until);

  CloudLink& cloud_;
  const Model& model_;
  const int cut_;
  Batcher* const tail_;
  const RetryOptions retry_options_;
  Waiter& waiter_;
  const Requester requester_;  // of the tail's jobs

  std::string session_;  // 32 hex digits
  bool open_ = false;    // on the server, as far as we know
  bool reachable_ = true;
  uint32_t cloud_rows_ = 0;  // that the session surely has
  SequenceHistory history_;
  SequenceId sequence_ = 0;  // of the tail
  std::vector<float> logits_;
  SplitCounts& counts_;
};

}  // namespace split::edge
