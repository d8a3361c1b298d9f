#include "run/forward.h"

#include <algorithm>
#include <utility>

namespace split {

LocalForward::LocalForward(Batcher& batcher, Requester requester, std::optional<PrefixRoot> root)
    : batcher_(batcher),
      requester_(std::move(requester)),
      root_(std::move(root)),
      sequence_(batcher.shard().pages().open(!requester_.self)) {}

LocalForward::~LocalForward() {
  if (prefixes() != nullptr) prefixes()->put(*root_, sequence_, history_, blocks());
  batcher_.shard().pages().close(sequence_);
}

std::span<const float> LocalForward::run(const SequenceRows& rows) {
  history_.cut_back(rows.past);
  const size_t width = batcher_.shard().width(rows.range.to);
  out_.resize(rows.wanted_count() * width);
  // Other texts wait for what it computes, piece by piece.
  const bool shares = prefixes() != nullptr && rows.phase == Phase::kPrompt;
  const PrefixCache::Taken taken = shares && rows.past == 0 ? take(rows) : PrefixCache::Taken();
  if (!shares) put_far();
  float* out = out_.data();
  while (history_.size() - rows.past < rows.count()) {
    const uint32_t at = history_.size(), done = at - rows.past, left = rows.count() - done;
    const uint32_t end = shares ? prefixes()->step_end(blocks(), at, taken.parts_at) : UINT32_MAX;
    const uint32_t most = shares ? std::min(batcher_.shard().long_rows(), end - at) : left;
    const SequenceRows piece = rows.slice(done, std::min(left, most));
    computes(piece);
    run_piece(piece, out);
    out += piece.wanted_count() * width;
    if (!shares) continue;
    const uint32_t snapshot = piece.count() == left       ? PrefixCache::end_of(history_)
                              : at + piece.count() == end ? end
                                                          : 0;
    prefixes()->put(*root_, sequence_, history_, blocks(), snapshot);
    put_ = history_.size();
  }
  return out_;
}

// Leaves rows of a long answer, so that a text that goes on from there, or that is cut back, finds
// a snapshot not far before.
void LocalForward::put_far() {
  if (prefixes() == nullptr || history_.size() < put_ + PrefixCache::kSnapshotEvery) return;
  if (!batcher_.pages().keeps_states(blocks())) return;
  put_ = history_.size();
  prefixes()->put(*root_, sequence_, history_, blocks());
}

// Takes cached rows of a prompt at its start, as far as there are any.
PrefixCache::Taken LocalForward::take(const SequenceRows& rows) {
  SequenceHistory whole;
  whole.append(rows.tokens, rows.phase);
  batcher_.shard().pages().truncate(sequence_, 0);
  PrefixCache::Taken taken = prefixes()->take(*root_, sequence_, 0, whole, blocks(),
                                              rows.wanted.first(rows.count()), requester_.gone);
  cached_ = put_ = taken.rows;
  history_.append(rows.tokens.first(cached_), rows.phase);
  return taken;
}

void LocalForward::run_piece(const SequenceRows& rows, float* out) {
  for (bool done = false; !done;) {
    try {
      restore(rows.past);
      run_job(rows, out);
      done = true;
    } catch (const SequenceLost&) {
    } catch (...) {
      // Remembers rows that were computed although the run failed.
      const uint32_t have = batcher_.pages().length(sequence_);
      if (have > rows.past) history_.append(rows.tokens.first(have - rows.past), rows.phase);
      throw;
    }
  }
  history_.append(rows.tokens, rows.phase);
}

void LocalForward::run_job(const SequenceRows& rows, float* out) {
  Job job{sequence_, rows, out, requester_};
  batcher_.run(job);
  spent_.compute_ms += job.compute_ms;
  spent_.queue_ms += job.queue_ms;
}

// Recomputes the first `past` rows of a lost sequence, in their phases, so with equal bits.
void LocalForward::restore(uint32_t past) {
  KvPages& pages = batcher_.shard().pages();
  if (pages.own(sequence_, past) == past) return;
  history_.replay(
      past, [&] { return pages.filled(sequence_, blocks()); },
      [&](SequenceRows piece) {
        piece.range = blocks();
        run_job(piece, nullptr);
      });
}

bool LocalForward::forget_cached() {
  if (prefixes() != nullptr) prefixes()->forget(*root_);
  root_.reset();
  if (std::exchange(cached_, 0) == 0) return false;
  batcher_.shard().pages().truncate(sequence_, 0);
  return true;
}

std::vector<float> whole_text(Batcher& batcher, const Requester& requester, SequenceRows rows,
                              uint32_t prompt) {
  Shard& shard = batcher.shard();
  const size_t width = shard.width(rows.range.to);
  rows.wanted = Wanted::kAll;
  std::vector<float> out(rows.count() * width);
  if (shard.same_bits_in_both_phases()) prompt = rows.count();
  const OneSequence sequence(shard.pages());
  const auto run = [&](SequenceRows part, Phase phase, float* to) {
    part.phase = phase;
    Job job{sequence.id, part, to, requester};
    if (part.count() > 0) batcher.run(job);
  };
  run(rows.slice(0, prompt), Phase::kPrompt, out.data());
  run(rows.slice(prompt, rows.count() - prompt), Phase::kGenerate, out.data() + prompt * width);
  return out;
}

}  // namespace split
