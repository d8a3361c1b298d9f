#include "run/forward.h"

namespace split {

LocalForward::LocalForward(Batcher& batcher, Asker asker)
    : batcher_(batcher), asker_(std::move(asker)), sequence_(batcher.shard().pages().open()) {}

LocalForward::~LocalForward() { batcher_.shard().pages().close(sequence_); }

std::span<const float> LocalForward::run(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase, bool all) {
  Shard& shard = batcher_.shard();
  shard.pages().truncate(sequence_, past);
  Job job;
  job.phase = phase;
  job.from = 0;
  job.to = shard.head_point();
  job.sequence = sequence_;
  job.rows = static_cast<uint32_t>(tokens.size());
  job.tokens = tokens.data();
  job.wanted = all ? Wanted::kAll : Wanted::kLast;
  logits_.resize((all ? tokens.size() : 1) * shard.width(job.to));
  job.out = logits_.data();
  job.asker = asker_;
  batcher_.run(job);
  compute_ms_ += job.compute_ms;
  return logits_;
}

}  // namespace split
