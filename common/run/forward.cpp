#include "run/forward.h"

namespace split {

LocalForward::LocalForward(Batcher& batcher, Requester requester)
    : batcher_(batcher),
      requester_(std::move(requester)),
      sequence_(batcher.shard().pages().open()) {}

LocalForward::~LocalForward() { batcher_.shard().pages().close(sequence_); }

std::span<const float> LocalForward::run(const SequenceRows& rows) {
  history_.cut_back(rows.past);
  out_.resize(rows.wanted_count() * batcher_.shard().width(rows.range.to));
  for (bool done = false; !done;) {
    try {
      restore(rows.past);
      run_job(rows, out_.data());
      done = true;
    } catch (const SequenceLost&) {
    }
  }
  history_.append(rows.tokens, rows.phase);
  return out_;
}

void LocalForward::run_job(const SequenceRows& rows, float* out) {
  Job job{sequence_, rows, out, requester_};
  batcher_.run(job);
  spent_.compute_ms += job.compute_ms;
  spent_.queue_ms += job.queue_ms;
}

// The sequence has the first `past` rows again: with their phases, so with their bits.
void LocalForward::restore(uint32_t past) {
  KvPages& pages = batcher_.shard().pages();
  if (pages.cut_back(sequence_, past)) return;
  const StageRange blocks{.to = batcher_.shard().model().config().layers};
  history_.replay(
      past, [&] { return pages.filled(sequence_, blocks); },
      [&](SequenceRows piece) {
        piece.range = blocks;
        run_job(piece, nullptr);
      });
}

}  // namespace split
