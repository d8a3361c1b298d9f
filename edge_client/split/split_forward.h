// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that a lost session,
// connection or server is answered by opening the session again and sending what it had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 never talks to the
// server.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "edge_client/cloud/remote.h"
#include "edge_client/cloud/retry.h"
#include "edge_client/weights/local_tail.h"
#include "run/forward.h"

namespace split::edge {

struct SplitCounts {
  Traffic traffic;
  uint64_t steps = 0;             // calls of run()
  uint64_t cloud_layer_rows = 0;  // rows times layers that ran on the cloud
  uint64_t replays = 0;
  double edge_ms = 0;  // computing here
  double ms = 0;       // in all

  SplitCounts& operator+=(const SplitCounts& other);
};

// Ends a session on the server, in its own time; must not throw.
using Goodbye = std::function<void(const std::string& session)>;

// One thread at a time.
class SplitForward : public Forward {
 public:
  // `tail` has the stages from `cut` on, with the head, or without it (perhaps with the norm), and
  // then the head is asked of the cloud; null when there are no stages for this machine. What it
  // costs is added to `counts` as it comes.
  SplitForward(Remote& remote, const wire::ModelInfo& info, const Model& model, int cut,
               Batcher* tail, const RetryOptions& retry, Interrupt& interrupt, SplitCounts& counts,
               Goodbye goodbye = {}, Asker asker = {});
  ~SplitForward() override;
  SplitForward(const SplitForward&) = delete;
  SplitForward& operator=(const SplitForward&) = delete;

  std::span<const float> run(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                             bool all) override;
  bool gives_top() const override { return head_here() && tail_->shard().far(); }
  std::span<const float> top(uint32_t past, std::span<const int32_t> tokens, Phase phase) override;
  // What leaves the final norm for each token of a prompt, [tokens, C]; the tail has the norm.
  std::vector<float> norms(std::span<const int32_t> tokens);

  // Ends the session on the server, if there is one, by `goodbye` or over a connection of its own;
  // waits at most a moment and never throws.
  void close() noexcept;

 private:
  struct Row {
    int32_t token;
    Phase phase;
  };
  bool head_here() const {
    return tail_ != nullptr && tail_->shard().options().last == tail_->shard().head_point();
  }
  std::span<const float> run_tail_to(int point, uint32_t past, std::span<const int32_t> tokens,
                                     Phase phase, bool all);
  void advance(uint32_t past, std::span<const int32_t> tokens, Phase phase, int to, bool all,
               float* out);
  wire::Matrix from_cloud(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                          wire::Rows rows);
  void open();
  void replay(uint32_t until);
  wire::Matrix step(uint32_t past, std::vector<int32_t> tokens, Phase phase, wire::Rows rows);
  void recover(const RemoteError& error, Retry& retry);
  void run_tail(Job& job);
  void restore_tail(uint32_t until);

  Remote& remote_;
  const wire::ModelInfo& info_;
  const Model& model_;
  const int cut_;
  Batcher* const tail_;
  const RetryOptions retry_options_;
  Interrupt& interrupt_;
  const Goodbye goodbye_;
  const Asker asker_;  // of the tail's jobs

  std::string session_;  // 32 hex digits
  bool open_ = false;    // on the server, as far as we know
  bool reachable_ = true;
  uint32_t cloud_rows_ = 0;  // that the session surely has
  std::vector<Row> rows_;    // of the whole sequence
  SequenceId sequence_ = 0;  // of the tail
  std::vector<float> out_, logits_;
  SplitCounts& counts_;
};

}  // namespace split::edge
