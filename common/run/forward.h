// One sequence of a whole model, wherever its parts run: on this machine's shard, or on another
// machine's and then this one's. generate() needs no more than this.
#pragma once

#include <span>
#include <vector>

#include "run/batcher.h"

namespace split {

class Forward {
 public:
  virtual ~Forward() = default;

  // Puts `tokens` behind the first `past` positions (what was there is forgotten) and returns
  // logits: of the last token [V], or with `all` of each [tokens, V]; valid until the next call.
  // Throws Error(kBusy, kDevice, kRemote).
  virtual std::span<const float> run(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                                     bool all) = 0;

  // Whether top() is cheaper than all logits.
  virtual bool gives_top() const { return false; }
  // The same with what the last token's largest logits are, best first, and whose: [2, K], K =
  // kTopLogits or the vocabulary.
  virtual std::span<const float> top(uint32_t past, std::span<const int32_t> tokens, Phase phase);

  // Milliseconds of its steps so far, where they are known: waiting for a step, and in one.
  struct Spent {
    double queue_ms = 0, compute_ms = 0;
  };
  virtual Spent spent() const { return {}; }
};

// The whole model on one shard, which has all stages. Remembers its rows, to compute them again
// when a device is lost.
class LocalForward : public Forward {
 public:
  explicit LocalForward(Batcher& batcher, Requester requester = {});
  ~LocalForward() override;
  LocalForward(const LocalForward&) = delete;
  LocalForward& operator=(const LocalForward&) = delete;

  std::span<const float> run(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                             bool all) override;
  bool gives_top() const override { return batcher_.shard().host_copy_is_slow(); }
  std::span<const float> top(uint32_t past, std::span<const int32_t> tokens, Phase phase) override;
  Spent spent() const override { return spent_; }

 private:
  struct Row {
    int32_t token;
    Phase phase;
  };
  std::span<const float> run_to(int point, uint32_t past, std::span<const int32_t> tokens,
                                Phase phase, bool all);
  void run_job(Job& job);
  void restore(uint32_t past);

  Batcher& batcher_;
  const Requester requester_;
  SequenceId sequence_;
  std::vector<Row> rows_;
  std::vector<float> out_;
  Spent spent_;
};

}  // namespace split
