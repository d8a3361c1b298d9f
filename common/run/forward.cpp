#include "run/forward.h"

namespace split {

LocalForward::LocalForward(Batcher& batcher, Asker asker)
    : batcher_(batcher), asker_(std::move(asker)), sequence_(batcher.shard().pages().open()) {}

LocalForward::~LocalForward() { batcher_.shard().pages().close(sequence_); }

std::span<const float> LocalForward::run(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase, bool all) {
  Shard& shard = batcher_.shard();
  CHECK(past <= rows_.size());
  rows_.resize(past);
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
  for (bool done = false; !done;) {
    try {
      restore(past);
      job.past = past;
      run_job(job);
      done = true;
    } catch (const LostRows&) {
    }
  }
  for (const int32_t token : tokens) rows_.push_back({token, phase});
  return logits_;
}

void LocalForward::run_job(Job& job) {
  batcher_.run(job);
  spent_.compute_ms += job.compute_ms;
  spent_.queue_ms += job.queue_ms;
}

// The sequence has the first `past` rows again: with their phases, so with their bits.
void LocalForward::restore(uint32_t past) {
  KvPages& pages = batcher_.shard().pages();
  if (pages.cut_back(sequence_, past)) return;
  for (uint32_t at = pages.length(sequence_); at < past;) {
    std::vector<int32_t> tokens;
    const Phase phase = rows_[at].phase;
    for (uint32_t i = at; i < past && rows_[i].phase == phase; ++i) {
      tokens.push_back(rows_[i].token);
    }
    Job job;
    job.phase = phase;
    job.to = batcher_.shard().model().config().layers;
    job.sequence = sequence_;
    job.past = at;
    job.rows = static_cast<uint32_t>(tokens.size());
    job.tokens = tokens.data();
    job.wanted = Wanted::kNone;
    job.asker = asker_;
    run_job(job);
    at += job.rows;
  }
}

}  // namespace split
