// Drives a Course in place: on the caller's thread, which blocks while the cloud answers, the tail
// computes, or time has to pass. Decides nothing.
#pragma once

#include "base/waiter.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/course.h"
#include "run/forward.h"

namespace split::edge {

// One thread at a time.
class SplitForward : public Forward {
 public:
  // As Course. All outlive it.
  SplitForward(CloudLink& cloud, const Model& model, int cut, Batcher* tail,
               const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
               Requester requester = {})
      : cloud_(cloud),
        waiter_(waiter),
        course_(model, cut, tail, retry, counts, std::move(requester)) {}
  ~SplitForward() override { close(); }
  SplitForward(const SplitForward&) = delete;
  SplitForward& operator=(const SplitForward&) = delete;

  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return course_.gives_top(); }
  // Returns the final norm's output for each token of a prompt, [tokens, C]; the tail has the norm.
  std::vector<float> norms(std::span<const int32_t> tokens);

  // Ends the session on the server, if there is one.
  void close() noexcept;

 private:
  void drive(Flow& flow);
  std::vector<float> ask(const Send& send);

  CloudLink& cloud_;
  Waiter& waiter_;
  Course course_;
};

}  // namespace split::edge
