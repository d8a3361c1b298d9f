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

  // Whether another machine computes the rows of the next step too, and they travel.
  virtual bool asks_others() const { return false; }

  // Milliseconds of its steps so far, where they are known: waiting for a step, and in one.
  struct Spent {
    double queue_ms = 0, compute_ms = 0;
  };
  virtual Spent spent() const { return {}; }

  // Rows of the prompt that were there and so not computed.
  virtual uint32_t cached() const { return 0; }
};

// The whole model on one shard, which has all stages. Remembers its rows, to compute them again
// when a device is lost.
class LocalForward : public Forward {
 public:
  // With a root it takes the rows that the batcher's prefixes have, and leaves its own there.
  explicit LocalForward(Batcher& batcher, Requester requester = {},
                        std::optional<PrefixRoot> root = {});
  ~LocalForward() override;
  LocalForward(const LocalForward&) = delete;
  LocalForward& operator=(const LocalForward&) = delete;

  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return batcher_.shard().host_copy_is_slow(); }
  Spent spent() const override { return spent_; }
  uint32_t cached() const override { return cached_; }

 protected:
  // Called before rows are computed that were not before.
  virtual void computes(const SequenceRows& /*rows*/) {}
  // After a result that is none: takes no rows any more, and forgets those that it took, here and
  // for others. False where it took none.
  bool forget_cached();

 private:
  PrefixCache* prefixes() { return root_ ? batcher_.prefixes() : nullptr; }
  StageRange blocks() const { return {.to = batcher_.shard().model().config().layers}; }
  PrefixCache::Computing take(const SequenceRows& rows);
  void run_piece(const SequenceRows& rows, float* out);
  void run_job(const SequenceRows& rows, float* out);
  void restore(uint32_t past);

  Batcher& batcher_;
  const Requester requester_;
  std::optional<PrefixRoot> root_;
  SequenceId sequence_;
  SequenceHistory history_;
  std::vector<float> out_;
  Spent spent_;
  uint32_t cached_ = 0;
};

}  // namespace split
