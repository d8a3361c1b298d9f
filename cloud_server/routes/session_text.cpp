#include "cloud_server/routes/session_text.h"

#include <algorithm>
#include <tuple>

#include "cloud_server/routes/job.h"

namespace split::cloud {

std::string LoadBeside::comment() {
  const auto news = [](const wire::LoadNote& is) { return std::tie(is.want, is.draft, is.bits); };
  if (told_ && news(*told_) == news(note)) return {};
  told_ = note;
  return cat(wire::kLoadHeader, ": ", wire::to_text(note));
}

SessionForward::SessionForward(Cloud& cloud, ServedModel& model, SessionName name,
                               Requester requester, std::shared_ptr<LoadBeside> beside,
                               size_t generated_from, std::optional<PrefixRoot> root)
    : cloud_(cloud),
      model_(model),
      name_(std::move(name)),
      requester_(std::move(requester)),
      beside_(std::move(beside)),
      generated_from_(static_cast<uint32_t>(generated_from)),
      root_(std::move(root)) {}

std::span<const float> SessionForward::run(const SequenceRows& rows) {
  remember(rows);
  out_.resize(rows.wanted_count() * shard().width(rows.range.to));
  for (bool done = false; !done;) {
    try {
      const auto use = [&](Session& session) { run_in(session, rows); };
      if (!cloud_.sessions.with(name_, use)) unknown_session();
      done = true;
    } catch (const SequenceLost&) {
    }
  }
  if (!all_finite(out_) && root_) {
    forget_cached();
    if (cached_ > 0) return run(rows);
  }
  if (!all_finite(out_)) refuse_overflow(model_, false);
  return out_;
}

// Drops cached rows that may have caused a result that is not finite.
void SessionForward::forget_cached() {
  if (PrefixCache* const prefixes = model_.batcher().prefixes()) prefixes->forget(*root_);
  root_.reset();
  cloud_.sessions.with(name_, [&](Session& session) {
    model_.batcher().shard().pages().own(session.sequence, 0);
    session.history.cut_back(0);
  });
}

PrefixCache::Taken SessionForward::take(Session& session, uint32_t at, uint32_t most) {
  PrefixCache* const prefixes = model_.batcher().prefixes();
  if (!root_ || prefixes == nullptr || at % kPageTokens != 0) return {};
  PrefixCache::Taken taken =
      prefixes->take(*root_, session.sequence, at, text_, session.range, most, requester_.gone);
  for (const uint32_t end = at + taken.rows; at < end;) {
    const SequenceRows piece = text_.piece(at, end);
    session.history.append(piece.tokens, piece.phase);
    at += piece.count();
  }
  return taken;
}

void SessionForward::remember(const SequenceRows& rows) {
  text_.cut_back(rows.past);
  const size_t prompt =
      std::min(rows.count(), generated_from_ - std::min(rows.past, generated_from_));
  text_.append(rows.tokens.first(prompt), Phase::kPrompt);
  text_.append(rows.tokens.subspan(prompt), Phase::kGenerate);
}

// Drops the session's rows that are not the text's, and computes missing ones.
void SessionForward::run_in(Session& session, const SequenceRows& rows) {
  // A client that left the stream goes on with the session, which is then not cut back for this
  // text.
  if (requester_.gone && requester_.gone()) throw RequesterGone();
  KvPages& pages = model_.batcher().shard().pages();
  const uint32_t end = text_.size();
  const uint32_t first = rows.wanted == Wanted::kLast ? end - 1 : rows.past;
  uint32_t at = std::min({session.history.common(text_, shard().same_bits_in_both_phases()), first,
                          pages.filled(session.sequence, session.range)});
  session.can = beside_->can;
  model_.cut_requests().comes(session.sequence, rows.range.to);
  at = pages.own(session.sequence, at);
  session.history.cut_back(at);
  session.root = root_;
  const bool begins = rows.phase == Phase::kPrompt;
  const PrefixCache::Taken taken =
      begins ? take(session, at, first) : PrefixCache::Taken();  // lives until the rows are
                                                                 // computed
  const bool again = std::exchange(beside_->again, false) && at < first;
  at += taken.rows;
  if (begins) cached_ = at;
  if (again) model_.count_again(session, first - at);
  if (!begins) keep_far(session, session.range);
  float* out = out_.data();
  while (at < end) {
    const bool all = rows.wanted == Wanted::kAll, before = at < first;
    const uint32_t stop = begins ? step_end(session, session.range, at, taken.parts_at) : end;
    SequenceRows piece = text_.piece(at, std::min(all && before ? first : end, stop));
    at += piece.count();
    if (all && !before) piece.wanted = Wanted::kAll;
    if (!all && at == end) piece.wanted = Wanted::kLast;
    piece.range.to = piece.wanted == Wanted::kNone ? session.range.to : rows.range.to;
    run_piece(session, piece, out);
    if (piece.phase == Phase::kPrompt) {
      keep_rows(session, session.range,
                at == end ? std::nullopt : std::optional(at == stop ? at : 0));
    }
    out += piece.wanted_count() * shard().width(piece.range.to);
  }
  beside_->note = tell_load(cloud_, model_, session);
  beside_->note.cached = cached_;
}

void SessionForward::run_piece(Session& session, const SequenceRows& piece, float* out) {
  Job job{session.sequence, piece, out, requester_};
  cloud_.keys.took_rows(requester_.owner, shard().whole_rows(piece));
  run_in_session(session, model_, job);
  ++session.receipt.steps;
  spent_.queue_ms += job.queue_ms;
  spent_.compute_ms += job.compute_ms;
}

}  // namespace split::cloud
