// A fill of a session's rows, as a cloud's route does it.
#pragma once

#include <algorithm>
#include <span>

#include "run/batcher.h"

namespace split::test {

// Computes rows again that a sequence of these ids has, and first earlier ones that a state asks
// for. Writes the wanted rows to `to`.
inline void fill_rows(Batcher& batcher, SequenceId sequence, std::span<const int32_t> ids,
                      const SequenceRows& rows, float* to) {
  for (uint32_t at = 0; at < rows.count();) {
    const uint32_t past = rows.past + at;
    const KvPages::Again again = batcher.pages().again(sequence, rows.range, past);
    Job job{sequence, {}};
    job.fill = true;
    if (again.from < past) {
      job.rows = {.past = again.from,
                  .tokens = ids.subspan(again.from, past - again.from),
                  .phase = rows.phase,
                  .wanted = Wanted::kNone};
      job.rows.range = {rows.range.from, again.to};
    } else {
      job.rows = rows.slice(at, std::min(rows.count() - at, again.end - past));
      job.out = to;
      to += job.rows.wanted_count() * batcher.shard().width(rows.range.to);
      at += job.rows.count();
    }
    batcher.run(job);
  }
}

// Leaves a snapshot of the blocks that a step up to range.to ran, where its last whole page ends.
inline void leave_snapshot(Shard& shard, SequenceId sequence, StageRange range) {
  range.to = std::min(range.to, Point(shard.model().config().layers));
  shard.leave(sequence, range, shard.pages().length(sequence) / kPageTokens * kPageTokens);
}

}  // namespace split::test
