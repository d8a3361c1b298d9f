#include "edge_client/split/course.h"

#include <algorithm>

namespace split::edge {
namespace {

// The text is to go on without the cloud.
struct CloudLost {};

}  // namespace

Course::Course(const Model& model, int cut, Batcher* tail, const RetryOptions& retry,
               SplitCounts& counts, Requester requester, const MoveOptions* moves)
    : retry_(retry),
      counts_(counts),
      sides_(model, cut, moves == nullptr ? cut : std::max(cut, moves->deepest), tail,
             std::move(requester)) {
  CHECK(cut > 0 || tail != nullptr);
  if (moves == nullptr) return;
  CHECK(head_here());
  lane_.emplace(sides_, *moves, retry);
}

std::vector<std::string> Course::leave() {
  std::vector<std::string> sessions;
  if (lane_) {
    counts_ += lane_->take_counts();
    sessions = lane_->leave();
  }
  CloudSide& cloud = sides_.cloud;
  if (std::exchange(cloud.open, false) && cloud.reachable) sessions.push_back(cloud.session);
  return sessions;
}

Flow& Course::run(const SequenceRows& rows) {
  flow_.start(run_rows(rows));
  return flow_;
}

Flow& Course::norms(std::span<const int32_t> tokens) {
  flow_.start(run_norms(tokens));
  return flow_;
}

Task<void> Course::pause(const RemoteError& error, bool passes, Backoff& backoff) {
  if (sides_.interrupted) throw error;
  const auto wait = backoff.failed(error, passes, flow_.now());
  co_await Wait{flow_.now() + wait};
  if (sides_.interrupted) throw error;
  backoff.again(error);
}

Task<void> Course::run_rows(SequenceRows rows) {
  ++counts_.steps;
  if (head_here()) {
    results_.resize(rows.wanted_count() * sides_.tail->shard().width(rows.range.to));
    co_await advance(rows, results_.data());
    co_return;
  }
  SequenceRows below = rows;
  below.range.to = sides_.layers();
  std::vector<float> hidden(rows.wanted_count() * sides_.channels());
  co_await advance(below, hidden.data());
  const Send above{.call = Send::kForward,
                   .session = {},
                   .rows = {.range = {below.range.to, Point::head()},
                            .hidden = hidden,
                            .width = static_cast<uint32_t>(sides_.channels()),
                            .wanted = Wanted::kAll},
                   .traffic = &counts_.traffic};
  for (Backoff backoff(retry_);;) {
    std::optional<RemoteError> error;
    try {
      results_ = co_await above;
      co_return;
    } catch (const RemoteError& refused) {
      error = refused;
    }
    co_await pause(*error, error->transient(), backoff);
  }
}

Task<void> Course::run_norms(std::span<const int32_t> tokens) {
  ++counts_.steps;
  results_.resize(tokens.size() * sides_.channels());
  const SequenceRows rows{.range = {.to = Point::norm()}, .tokens = tokens, .wanted = Wanted::kAll};
  co_await advance(rows, results_.data());
}

// A token, or rows of a prompt; at a token the cut may move.
Task<void> Course::advance(SequenceRows rows, float* out) {
  CHECK(!rows.tokens.empty());
  if (!lane_) {
    co_await pass(rows, out);
    co_return;
  }
  counts_ += lane_->take_counts();
  std::vector<Move> moves;
  const Moment began = flow_.now();
  const uint64_t before = counts_.traffic.bytes_up + counts_.traffic.bytes_down;
  if (rows.phase == Phase::kGenerate) {
    out_ = rows.past + rows.count() - sides_.prompt_rows;
    co_await meet_lane();
    if (lane_->can_switch(out_)) {
      moves.push_back(lane_->take(out_));
      rows = caught_up(rows);
    }
  }
  bool lost = false;
  try {
    co_await pass(rows, out);
  } catch (const CloudLost&) {
    lost = true;
  }
  if (lost) {
    moves.push_back(lane_->leave_cloud(out_, rows.past));
    co_await pass(rows, out);
  }
  if (moves.empty()) co_return;
  moves.back().bytes += counts_.traffic.bytes_up + counts_.traffic.bytes_down - before;
  moves.back().pause_ms = std::chrono::duration<double, std::milli>(flow_.now() - began).count();
  counts_ += lane_->take_counts();
  counts_.moves.insert(counts_.moves.end(), moves.begin(), moves.end());
}

// Waits for a target that is due, as long as it comes nearer.
Task<void> Course::meet_lane() {
  while (!lane_->can_switch(out_) && lane_->is_waited_for(out_)) {
    if (sides_.interrupted) throw RemoteError("[edge] interrupted", 0, "");
    co_await Wait{};
  }
}

// With the rows before them that one of the sides lacks at the new cut. One that lacks more lost
// them just now: it gets them again as at any token.
SequenceRows Course::caught_up(SequenceRows rows) {
  uint32_t past = rows.past;
  const auto include = [&](uint32_t there) {
    if (sides_.near_end(there)) past = std::min(past, there);
  };
  if (sides_.cut < sides_.layers()) include(sides_.tail->rows_from(sides_.cut));
  if (sides_.cut > 0) include(sides_.cloud.rows.below(sides_.cut));
  if (past == rows.past) return rows;
  const SequenceRows lag = sides_.history.piece(past, rows.past);
  with_lag_.assign(lag.tokens.begin(), lag.tokens.end());
  with_lag_.insert(with_lag_.end(), rows.tokens.begin(), rows.tokens.end());
  rows.past = past;
  rows.tokens = with_lag_;
  rows.wanted = Wanted::kLast;
  return rows;
}

// Waits until no job of the lane has the tail's sequence.
Task<void> Course::tail_is_free() {
  while (sides_.held()) co_await Wait{};
}

// The rows pass both sides.
Task<void> Course::pass(SequenceRows rows, float* out) {
  co_await tail_is_free();
  sides_.history.cut_back(rows.past);
  sides_.cloud.rows.cut_back(rows.past);
  const Point to = rows.range.to;
  const bool local = sides_.tail != nullptr && to > sides_.cut;
  const bool keeps_rows = local && sides_.cut < sides_.layers();  // the tail has a KV cache
  if (keeps_rows) sides_.tail->pages().cut_back(sides_.tail->sequence(), rows.past);
  const size_t width = local ? sides_.tail->shard().width(to) : sides_.channels();
  for (uint32_t at = 0; at < rows.count(); at += SequenceHistory::kPieceRows) {
    if (sides_.interrupted) throw RemoteError("[edge] interrupted", 0, "");
    const SequenceRows piece =
        rows.slice(at, std::min(SequenceHistory::kPieceRows, rows.count() - at));
    // Without blocks of ours only the rows whose result is wanted need to travel.
    const bool every = keeps_rows || rows.wanted == Wanted::kAll;
    std::vector<float> hidden;
    SequenceRows ours = co_await for_tail(piece, every, hidden);
    if (!local) {
      if (piece.wanted_count() > 0) std::ranges::copy(hidden, out);
    } else if (keeps_rows) {
      co_await run_tail(ours, out);
    } else if (piece.wanted_count() > 0) {
      ours.past = 0;
      co_await run_passing(ours, out);
    }
    out += piece.wanted_count() * width;
    sides_.history.append(piece.tokens, piece.phase);
    if (piece.phase == Phase::kPrompt) sides_.prompt_rows = sides_.history.size();
    ++sides_.version;
  }
}

// Gives the rows as the tail takes them: as they are, or what leaves the cloud's blocks for them,
// for every one or for the last alone. They lie in `hidden` then.
Task<SequenceRows> Course::for_tail(SequenceRows rows, bool every, std::vector<float>& hidden) {
  if (sides_.cut == 0) co_return rows;
  hidden = co_await from_cloud(rows, every);
  rows.range.from = sides_.cut;
  rows.tokens = {};
  rows.hidden = hidden;
  rows.width = static_cast<uint32_t>(sides_.channels());
  co_return rows;
}

Task<void> Course::compute(Job& job) {
  co_await tail_is_free();
  const TwoSides::Hold hold(sides_);
  co_await Compute{&sides_.tail->batcher(), &job, &counts_.edge_ms};
}

Task<void> Course::run_tail(SequenceRows rows, float* out) {
  Job job{sides_.tail->sequence(), rows, out, sides_.requester};
  for (;;) {
    try {
      co_await compute(job);
      co_return;
    } catch (const SequenceLost&) {
    }
    co_await restore_tail(rows.past);
  }
}

// Through no block: nothing is kept.
Task<void> Course::run_passing(SequenceRows rows, float* out) {
  KvPages& pages = sides_.tail->pages();
  Job job{sides_.tail->passing(), rows, out, sides_.requester};
  for (;;) {
    pages.cut_back(sides_.tail->passing(), 0);
    try {
      co_await compute(job);
      co_return;
    } catch (const SequenceLost&) {
    }
  }
}

// The tail has the first `until` rows again, whose hidden states the cloud computes once more.
Task<void> Course::restore_tail(uint32_t until) {
  for (uint32_t at; (at = sides_.tail->rows_from(sides_.cut)) < until;) {
    SequenceRows piece = sides_.history.piece(at, until);
    piece.range.to = sides_.layers();
    std::vector<float> hidden;
    const SequenceRows ours = co_await for_tail(piece, true, hidden);
    Job job{sides_.tail->sequence(), ours, nullptr, sides_.requester};
    try {
      co_await compute(job);
    } catch (const SequenceLost&) {  // again: from what it has then
    }
  }
}

// Asks for what leaves the cloud's blocks, for every row or for the last alone.
Task<std::vector<float>> Course::from_cloud(SequenceRows rows, bool every) {
  rows.range = {.to = sides_.cut};
  rows.wanted = every ? Wanted::kAll : Wanted::kLast;
  for (Backoff backoff(retry_);;) {
    std::optional<RemoteError> error;
    try {
      if (!sides_.cloud.open) co_await open();
      if (sides_.cloud.rows.below(sides_.cut) < rows.past) co_await replay(rows.past);
      co_return co_await step(rows);
    } catch (const RemoteError& refused) {
      error = refused;
    }
    co_await recover(*error, backoff);
  }
}

Task<std::vector<float>> Course::step(SequenceRows rows) {
  const Send asked{Send::kStep, sides_.cloud.session, rows, &counts_.traffic};
  std::vector<float> hidden = co_await asked;
  sides_.cloud.reachable = true;
  sides_.cloud.rows.step(rows.past, rows.past + rows.count(), sides_.cut);
  counts_.cloud_layer_rows += uint64_t{rows.count()} * static_cast<uint64_t>(sides_.cut);
  co_return hidden;
}

Task<void> Course::open() {
  sides_.cloud.rows.cut_back(0);
  const Send asked{
      Send::kOpen, sides_.cloud.session, {.range = {.to = sides_.deepest}}, &counts_.traffic};
  co_await asked;
  sides_.cloud.open = true;
}

// The rows the session should have and does not.
Task<void> Course::replay(uint32_t until) {
  ++counts_.replays;
  for (uint32_t at; (at = sides_.cloud.rows.below(sides_.cut)) < until;) {
    SequenceRows piece = sides_.history.piece(at, until);
    piece.range = {.to = sides_.cut};
    piece.wanted = Wanted::kLast;
    co_await step(piece);
  }
}

// Prepares for another try and waits for it, or throws.
Task<void> Course::recover(const RemoteError& error, Backoff& backoff) {
  const bool gone = error.status == 0 || error.code == "model_mismatch";
  if (gone && !sides_.interrupted && lane_ && lane_->can_leave_cloud()) throw CloudLost();
  CloudSide& cloud = sides_.cloud;
  cloud.reachable = error.status != 0 || sides_.interrupted;
  bool passes = true;
  if (error.code == "session_unknown") {
    cloud.open = false;
  } else if (error.code == "position_mismatch") {
    cloud.rows.cut_back(0);
  } else if (error.code == "depth_mismatch") {
    cloud.rows.limit(0, sides_.cut, error.have.value_or(0));
  } else if (error.code == "session_conflict") {
    cloud = CloudSide(sides_.layers());
  } else {
    passes = error.transient();
  }
  co_await pause(error, passes, backoff);
}

}  // namespace split::edge
