#include "edge_client/split/split_forward.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

std::string random_session_id() {
  std::array<unsigned char, 16> bits{};
  CHECK(RAND_bytes(bits.data(), bits.size()) == 1);
  return to_hex(std::as_bytes(std::span(bits)));
}

}  // namespace

SplitForward::SplitForward(CloudLink& cloud, const Model& model, int cut, Batcher* tail,
                           const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
                           Requester requester)
    : cloud_(cloud),
      model_(model),
      cut_(cut),
      tail_(tail),
      retry_options_(retry),
      waiter_(waiter),
      requester_(std::move(requester)),
      session_(random_session_id()),
      counts_(counts) {
  CHECK(cut_ > 0 || tail_ != nullptr);
  if (tail_ != nullptr) sequence_ = tail_->shard().pages().open();
}

SplitForward::~SplitForward() {
  close();
  if (tail_ != nullptr) tail_->shard().pages().close(sequence_);
}

void SplitForward::close() noexcept {
  if (!open_ || !reachable_) return;
  open_ = false;
  cloud_.close(session_);
}

std::span<const float> SplitForward::run(const SequenceRows& rows) {
  ++counts_.steps;
  if (head_here()) {
    logits_.resize(rows.wanted_count() * tail_->shard().width(rows.range.to));
    advance(rows, logits_.data());
    return logits_;
  }
  SequenceRows below = rows;
  below.range.to = model_.config().layers;
  const auto channels = static_cast<uint32_t>(model_.config().channels);
  std::vector<float> hidden(rows.wanted_count() * channels);
  advance(below, hidden.data());
  const SequenceRows above{.range = {below.range.to, Point::head()},
                           .hidden = hidden,
                           .width = channels,
                           .wanted = Wanted::kAll};
  Retry retry(retry_options_, waiter_);
  for (;;) {
    try {
      logits_ = cloud_.forward(above, counts_.traffic);
      return logits_;
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

std::vector<float> SplitForward::norms(std::span<const int32_t> tokens) {
  ++counts_.steps;
  std::vector<float> out(tokens.size() * static_cast<size_t>(model_.config().channels));
  advance({.range = {.to = Point::norm()}, .tokens = tokens, .wanted = Wanted::kAll}, out.data());
  return out;
}

void SplitForward::advance(const SequenceRows& rows, float* out) {
  CHECK(!rows.tokens.empty());
  history_.cut_back(rows.past);
  cloud_rows_ = std::min(cloud_rows_, rows.past);
  const Point to = rows.range.to;
  const bool local = tail_ != nullptr && to > cut_;
  const bool keeps_rows = local && cut_ < model_.config().layers;  // the tail has a KV cache
  if (keeps_rows) tail_->shard().pages().cut_back(sequence_, rows.past);
  const size_t width =
      local ? tail_->shard().width(to) : static_cast<size_t>(model_.config().channels);
  for (uint32_t at = 0; at < rows.count(); at += SequenceHistory::kPieceRows) {
    if (waiter_.interrupted()) throw RemoteError("[edge] interrupted", 0, "");
    const SequenceRows piece =
        rows.slice(at, std::min(SequenceHistory::kPieceRows, rows.count() - at));
    // Without blocks of ours only the rows whose result is wanted need to travel.
    const bool every = keeps_rows || rows.wanted == Wanted::kAll;
    std::vector<float> hidden;
    SequenceRows ours = for_tail(piece, every, hidden);
    if (!local) {
      if (piece.wanted_count() > 0) std::ranges::copy(hidden, out);
    } else if (keeps_rows || piece.wanted_count() > 0) {
      if (!keeps_rows) {
        ours.past = 0;
        tail_->shard().pages().cut_back(sequence_, 0);
      }
      run_tail(ours, out);
    }
    out += piece.wanted_count() * width;
    history_.append(piece.tokens, piece.phase);
  }
}

// Gives the rows as the tail takes them: as they are, or what leaves the cloud's blocks for them,
// for every one or for the last alone. They lie in `hidden` then.
SequenceRows SplitForward::for_tail(SequenceRows rows, bool every, std::vector<float>& hidden) {
  if (cut_ == 0) return rows;
  hidden = from_cloud(rows, every);
  rows.range.from = cut_;
  rows.tokens = {};
  rows.hidden = hidden;
  rows.width = static_cast<uint32_t>(model_.config().channels);
  return rows;
}

void SplitForward::run_tail(const SequenceRows& rows, float* out) {
  Job job{sequence_, rows, out, requester_};
  for (bool done = false; !done;) {
    const auto start = Clock::now();
    try {
      tail_->run(job);
      done = true;
    } catch (const SequenceLost&) {
    }
    counts_.edge_ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (!done) restore_tail(rows.past);
  }
}

// The tail has the first `until` rows again, whose hidden states the cloud computes once more.
void SplitForward::restore_tail(uint32_t until) {
  KvPages& pages = tail_->shard().pages();
  history_.replay(
      until, [&] { return pages.length(sequence_); },
      [&](SequenceRows piece) {
        piece.range.to = model_.config().layers;
        std::vector<float> hidden;
        Job job{sequence_, for_tail(piece, true, hidden), nullptr, requester_};
        try {
          tail_->run(job);
        } catch (const SequenceLost&) {  // again: from what it has then
        }
      });
}

// Asks for what leaves the cloud's blocks, for every row or for the last alone.
std::vector<float> SplitForward::from_cloud(SequenceRows rows, bool every) {
  rows.range = cloud_range();
  rows.wanted = every ? Wanted::kAll : Wanted::kLast;
  Retry retry(retry_options_, waiter_);
  for (;;) {
    try {
      if (!open_) open();
      if (cloud_rows_ < rows.past) replay(rows.past);
      return step(rows);
    } catch (const RemoteError& error) {
      recover(error, retry);
    }
  }
}

std::vector<float> SplitForward::step(const SequenceRows& rows) {
  std::vector<float> hidden = cloud_.step(session_, rows, counts_.traffic);
  reachable_ = true;
  cloud_rows_ = rows.past + rows.count();
  counts_.cloud_layer_rows += uint64_t{rows.count()} * static_cast<uint64_t>(cut_);
  return hidden;
}

void SplitForward::open() {
  cloud_rows_ = 0;
  cloud_.open(session_, cloud_range());
  open_ = true;
}

// The rows the session should have and does not.
void SplitForward::replay(uint32_t until) {
  ++counts_.replays;
  history_.replay(
      until, [&] { return cloud_rows_; },
      [&](SequenceRows piece) {
        piece.range = cloud_range();
        piece.wanted = Wanted::kLast;
        step(piece);
      });
}

// Prepares for another try and waits for it, or throws.
void SplitForward::recover(const RemoteError& error, Retry& retry) {
  reachable_ = error.status != 0 || waiter_.interrupted();
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
  retry.failed(error, passes);
}

}  // namespace split::edge
