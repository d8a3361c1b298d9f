#include "run/forward.h"

namespace split {

std::span<const float> Forward::top(uint32_t, std::span<const int32_t>, Phase) {
  CHECK(gives_top());
  return {};
}

LocalForward::LocalForward(Batcher& batcher, Requester requester)
    : batcher_(batcher),
      requester_(std::move(requester)),
      sequence_(batcher.shard().pages().open()) {}

LocalForward::~LocalForward() { batcher_.shard().pages().close(sequence_); }

std::span<const float> LocalForward::run(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase, bool all) {
  return run_to(batcher_.shard().head_point(), past, tokens, phase, all);
}

std::span<const float> LocalForward::top(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase) {
  return run_to(batcher_.shard().top_point(), past, tokens, phase, false);
}

std::span<const float> LocalForward::run_to(int point, uint32_t past,
                                            std::span<const int32_t> tokens, Phase phase,
                                            bool all) {
  CHECK(past <= rows_.size());
  rows_.resize(past);
  Job job;
  job.phase = phase;
  job.from = 0;
  job.to = point;
  job.sequence = sequence_;
  job.rows = static_cast<uint32_t>(tokens.size());
  job.tokens = tokens.data();
  job.wanted = all ? Wanted::kAll : Wanted::kLast;
  out_.resize((all ? tokens.size() : 1) * batcher_.shard().width(job.to));
  job.out = out_.data();
  job.requester = requester_;
  for (bool done = false; !done;) {
    try {
      restore(past);
      job.past = past;
      run_job(job);
      done = true;
    } catch (const SequenceLost&) {
    }
  }
  for (const int32_t token : tokens) rows_.push_back({token, phase});
  return out_;
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
    job.requester = requester_;
    run_job(job);
    at += job.rows;
  }
}

}  // namespace split
