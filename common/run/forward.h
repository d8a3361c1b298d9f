// One sequence of a whole model, wherever its parts run: on this machine's shard, or on another
// machine's and then this one's. generate() needs no more than this.
#pragma once

#include <span>
#include <vector>

#include "run/batcher.h"
#include "run/sequence.h"

namespace split {

class Forward {
 public:
  virtual ~Forward() = default;

  // Puts tokens behind the first rows.past positions (what was there is forgotten) and returns
  // logits [wanted rows, V] of the last or of all of them, valid until the next call: rows.range.to
  // is the head. Or, where gives_top(), it is the top: the last token's largest logits, best first,
  // and whose they are, [2, K], K = kTopLogits or the vocabulary. Throws Error(kBusy, kDevice,
  // kRemote).
  virtual std::span<const float> run(const SequenceRows& rows) = 0;

  // Whether the top is there, and cheaper than all logits.
  virtual bool gives_top() const { return false; }

  // How many rows a step behind so many may have, where what comes then is not known to be asked of
  // the same one.
  virtual uint32_t most_rows(uint32_t /*past*/) const { return UINT32_MAX; }

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

  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return batcher_.shard().host_copy_is_slow(); }
  Spent spent() const override { return spent_; }

 private:
  void run_job(const SequenceRows& rows, float* out);
  void restore(uint32_t past);

  Batcher& batcher_;
  const Requester requester_;
  SequenceId sequence_;
  SequenceHistory history_;
  std::vector<float> out_;
  Spent spent_;
};

}  // namespace split
