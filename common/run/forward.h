// One sequence of a whole model, wherever its parts run: on this machine's shard, or first on
// another machine's. generate() needs no more.
#pragma once

#include <span>
#include <vector>

#include "run/batcher.h"
#include "run/sequence.h"

namespace split {

class Forward {
 public:
  virtual ~Forward() = default;

  // Puts tokens behind the first rows.past positions (rows there are forgotten) and returns logits
  // [wanted rows, V] of the last or of all of them, valid until the next call: rows.range.to is the
  // head. If gives_top(), it may be the top: the last token's largest logits, best first, and their
  // ids, [2, K], K = kTopLogits or the vocabulary. Throws Error(kBusy, kDevice, kRemote).
  virtual std::span<const float> run(const SequenceRows& rows) = 0;

  // Whether the top can be asked for, and is cheaper than all logits.
  virtual bool gives_top() const { return false; }

  // How many rows a step behind `past` may have if the machine that computes the rows after it may
  // be another one.
  virtual uint32_t most_rows(uint32_t /*past*/) const { return UINT32_MAX; }

  // Whether another machine computes the next step's rows too, so that they travel.
  virtual bool asks_others() const { return false; }

  // Milliseconds of its steps so far, where known: waiting for a step, and in one.
  struct Spent {
    double queue_ms = 0, compute_ms = 0;
  };
  virtual Spent spent() const { return {}; }

  // Prompt rows that were cached and so not computed.
  virtual uint32_t cached() const { return 0; }
};

// The whole model on one shard, which has all stages. Remembers its rows, to compute them again
// when a device is lost.
class LocalForward : public Forward {
 public:
  // With a root it takes rows from the batcher's prefixes, and leaves its own there.
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
  // Called before rows are computed for the first time.
  virtual void computes(const SequenceRows& /*rows*/) {}
  // Called after a result that is not a number: takes no cached rows any more, and removes those
  // that it took from the cache. Returns false if it took none.
  bool forget_cached();

 private:
  PrefixCache* prefixes() { return root_ ? batcher_.prefixes() : nullptr; }
  StageRange blocks() const { return {.to = batcher_.shard().model().config().layers}; }
  PrefixCache::Taken take(const SequenceRows& rows);
  void put_far();
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
  uint32_t put_ = 0;  // rows that it left in the cache, or took
};

// The rows of a whole text at rows.range.to, all of them, on a sequence of its own: the first
// `prompt` rows are a prompt's, the others generated ones. Throws as Batcher::run.
std::vector<float> whole_text(Batcher& batcher, const Requester& requester, SequenceRows rows,
                              uint32_t prompt);

}  // namespace split
