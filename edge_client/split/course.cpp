#include "edge_client/split/course.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace split::edge {
namespace {

std::string random_session_id() {
  std::array<unsigned char, 16> bits{};
  CHECK(RAND_bytes(bits.data(), bits.size()) == 1);
  return to_hex(std::as_bytes(std::span(bits)));
}

}  // namespace

Course::Course(const Model& model, int cut, Batcher* tail, const RetryOptions& retry,
               SplitCounts& counts, Requester requester)
    : model_(model),
      cut_(cut),
      tail_(tail),
      retry_(retry),
      requester_(std::move(requester)),
      counts_(counts),
      session_(random_session_id()) {
  CHECK(cut_ > 0 || tail_ != nullptr);
  if (tail_ != nullptr) sequence_ = tail_->shard().pages().open();
}

Course::~Course() {
  if (tail_ != nullptr) tail_->shard().pages().close(sequence_);
}

std::optional<std::string> Course::leave() {
  if (!std::exchange(open_, false) || !reachable_) return std::nullopt;
  return session_;
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
  if (interrupted_) throw error;
  const auto wait = backoff.failed(error, passes, flow_.now());
  co_await Wait{flow_.now() + wait};
  if (interrupted_) throw error;
  backoff.again(error);
}

Task<void> Course::run_rows(SequenceRows rows) {
  ++counts_.steps;
  if (head_here()) {
    results_.resize(rows.wanted_count() * tail_->shard().width(rows.range.to));
    co_await advance(rows, results_.data());
    co_return;
  }
  SequenceRows below = rows;
  below.range.to = model_.config().layers;
  std::vector<float> hidden(rows.wanted_count() * channels());
  co_await advance(below, hidden.data());
  const Send above{.call = Send::kForward,
                   .session = {},
                   .rows = {.range = {below.range.to, Point::head()},
                            .hidden = hidden,
                            .width = static_cast<uint32_t>(channels()),
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
  results_.resize(tokens.size() * channels());
  const SequenceRows rows{.range = {.to = Point::norm()}, .tokens = tokens, .wanted = Wanted::kAll};
  co_await advance(rows, results_.data());
}

Task<void> Course::advance(SequenceRows rows, float* out) {
  CHECK(!rows.tokens.empty());
  history_.cut_back(rows.past);
  cloud_rows_ = std::min(cloud_rows_, rows.past);
  const Point to = rows.range.to;
  const bool local = tail_ != nullptr && to > cut_;
  const bool keeps_rows = local && cut_ < model_.config().layers;  // the tail has a KV cache
  if (keeps_rows) tail_->shard().pages().cut_back(sequence_, rows.past);
  const size_t width = local ? tail_->shard().width(to) : channels();
  for (uint32_t at = 0; at < rows.count(); at += SequenceHistory::kPieceRows) {
    if (interrupted_) throw RemoteError("[edge] interrupted", 0, "");
    const SequenceRows piece =
        rows.slice(at, std::min(SequenceHistory::kPieceRows, rows.count() - at));
    // Without blocks of ours only the rows whose result is wanted need to travel.
    const bool every = keeps_rows || rows.wanted == Wanted::kAll;
    std::vector<float> hidden;
    SequenceRows ours = co_await for_tail(piece, every, hidden);
    if (!local) {
      if (piece.wanted_count() > 0) std::ranges::copy(hidden, out);
    } else if (keeps_rows || piece.wanted_count() > 0) {
      if (!keeps_rows) {
        ours.past = 0;
        tail_->shard().pages().cut_back(sequence_, 0);
      }
      co_await run_tail(ours, out);
    }
    out += piece.wanted_count() * width;
    history_.append(piece.tokens, piece.phase);
  }
}

// Gives the rows as the tail takes them: as they are, or what leaves the cloud's blocks for them,
// for every one or for the last alone. They lie in `hidden` then.
Task<SequenceRows> Course::for_tail(SequenceRows rows, bool every, std::vector<float>& hidden) {
  if (cut_ == 0) co_return rows;
  hidden = co_await from_cloud(rows, every);
  rows.range.from = cut_;
  rows.tokens = {};
  rows.hidden = hidden;
  rows.width = static_cast<uint32_t>(channels());
  co_return rows;
}

Task<void> Course::run_tail(SequenceRows rows, float* out) {
  Job job{sequence_, rows, out, requester_};
  for (;;) {
    try {
      co_await Compute{tail_, &job, &counts_.edge_ms};
      co_return;
    } catch (const SequenceLost&) {
    }
    co_await restore_tail(rows.past);
  }
}

// The tail has the first `until` rows again, whose hidden states the cloud computes once more.
Task<void> Course::restore_tail(uint32_t until) {
  KvPages& pages = tail_->shard().pages();
  for (uint32_t at; (at = pages.length(sequence_)) < until;) {
    SequenceRows piece = history_.piece(at, until);
    piece.range.to = model_.config().layers;
    std::vector<float> hidden;
    const SequenceRows ours = co_await for_tail(piece, true, hidden);
    Job job{sequence_, ours, nullptr, requester_};
    try {
      co_await Compute{tail_, &job, &counts_.edge_ms};
    } catch (const SequenceLost&) {  // again: from what it has then
    }
  }
}

// Asks for what leaves the cloud's blocks, for every row or for the last alone.
Task<std::vector<float>> Course::from_cloud(SequenceRows rows, bool every) {
  rows.range = cloud_range();
  rows.wanted = every ? Wanted::kAll : Wanted::kLast;
  for (Backoff backoff(retry_);;) {
    std::optional<RemoteError> error;
    try {
      if (!open_) co_await open();
      if (cloud_rows_ < rows.past) co_await replay(rows.past);
      co_return co_await step(rows);
    } catch (const RemoteError& refused) {
      error = refused;
    }
    co_await recover(*error, backoff);
  }
}

Task<std::vector<float>> Course::step(SequenceRows rows) {
  const Send asked{Send::kStep, session_, rows, &counts_.traffic};
  std::vector<float> hidden = co_await asked;
  reachable_ = true;
  cloud_rows_ = rows.past + rows.count();
  counts_.cloud_layer_rows += uint64_t{rows.count()} * static_cast<uint64_t>(cut_);
  co_return hidden;
}

Task<void> Course::open() {
  cloud_rows_ = 0;
  const Send asked{Send::kOpen, session_, {.range = cloud_range()}, &counts_.traffic};
  co_await asked;
  open_ = true;
}

// The rows the session should have and does not.
Task<void> Course::replay(uint32_t until) {
  ++counts_.replays;
  while (cloud_rows_ < until) {
    SequenceRows piece = history_.piece(cloud_rows_, until);
    piece.range = cloud_range();
    piece.wanted = Wanted::kLast;
    co_await step(piece);
  }
}

// Prepares for another try and waits for it, or throws.
Task<void> Course::recover(const RemoteError& error, Backoff& backoff) {
  reachable_ = error.status != 0 || interrupted_;
  bool passes = error.transient();
  if (error.code == "session_unknown") {
    open_ = false;
    passes = true;
  } else if (error.code == "position_mismatch") {
    cloud_rows_ = 0;
    passes = true;
  } else if (error.code == "session_conflict") {
    session_ = random_session_id();
    open_ = false;
    passes = true;
  }
  co_await pause(error, passes, backoff);
}

}  // namespace split::edge
