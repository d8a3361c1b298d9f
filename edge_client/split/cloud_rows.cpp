#include "edge_client/split/cloud_rows.h"

#include <algorithm>

#include "wire/codes.h"

namespace split::edge {

namespace {

// Most rows of one step that sends tokens alone: bounds the time until its answer.
constexpr uint32_t kMostTokens = 1024;

}  // namespace

// The rows to send to a session that has the first `there`.
SequenceRows CloudRows::next_of(const SequenceRows& rows, uint32_t there) const {
  SequenceRows next = rows;
  if (there >= rows.past) return next;
  next = sides_.history.piece(there, rows.past);
  next.range = rows.range;
  next.wanted = behind_ ? Wanted::kNone : Wanted::kLast;
  if (behind_) {
    next.tokens = sides_.history.tokens().subspan(there, std::min(rows.past - there, kMostTokens));
  }
  return next;
}

Task<std::vector<float>> CloudRows::ask(SequenceRows rows, bool every) {
  rows.range = {.to = sides_.blocks()};
  if (every) rows.wanted = Wanted::kAll;
  CloudSide& cloud = sides_.cloud;
  is_asked();
  for (Backoff backoff(retry_);;) {
    std::optional<RemoteError> error;
    try {
      if (!cloud.open) {
        cloud.rows.cut_back(0);
        const Send begun{
            Send::kOpen, cloud.session, {.range = {.to = sides_.deepest}}, &counts_.traffic};
        co_await begun;
        cloud.open = true;
      }
      for (bool again = false;;) {
        const uint32_t there = cloud.rows.below(sides_.blocks());
        const bool had = there < rows.past && !behind_;
        if (had) begins_again_ |= !std::exchange(again, true);
        const SequenceRows next = next_of(rows, there);
        const uint64_t digest = sides_.history.digest(next.past);
        const Send asked{Send::kStep, cloud.session, next, &counts_.traffic, can(), digest, had};
        std::vector<float> hidden = co_await asked;
        const uint32_t cached = flow_.load() ? flow_.load()->cached : 0;
        if (rows.phase == Phase::kPrompt && !begins_again_) cached_ += cached;
        heed_load();
        answered();
        cloud.rows.step(next.past, next.past + next.count(), sides_.blocks());
        ++counts_.trips;
        const uint32_t computed = next.count() - std::min(cached, rows.past - next.past);
        counts_.cloud_layer_rows += uint64_t{computed} * static_cast<uint64_t>(sides_.blocks());
        if (next.past + next.count() != rows.past + rows.count()) continue;
        behind_ = false;
        co_return hidden;
      }
    } catch (const RemoteError& refused) {
      error = refused;
    }
    if (error && co_await is_lost(*error, backoff)) throw CloudLost();
  }
}

void CloudRows::answered() {
  is_asked();
  sides_.cloud.reachable = true;
  goes_on();
  if (mover != nullptr) mover->cloud_answered();
}

void CloudRows::goes_on() {
  counts_.survived += std::exchange(losing_, false) ? 1 : 0;
  counts_.replays += std::exchange(begins_again_, false) ? 1 : 0;
}

void CloudRows::heed_load() {
  const auto& load = flow_.load();
  if (!load) return;
  most_guesses_ = static_cast<uint32_t>(load->draft);
  if (mover != nullptr) mover->wish(load->want);
}

// When the cloud counts as lost if it has not answered.
Moment CloudRows::lost_at() const { return asked_ + loss_patience(retry_.budget); }

AfterLoss CloudRows::after(const RemoteError& error) const {
  if (mover == nullptr || sides_.interrupted) return AfterLoss::kRetry;
  LossInput loss = mover->loss();
  loss.silent = error.status == 0;
  loss.other_model = error.code == wire::codes::kModelMismatch;
  loss.since = std::chrono::duration_cast<std::chrono::milliseconds>(flow_.now() - asked_);
  loss.budget = retry_.budget;
  return after_loss(loss);
}

Task<bool> CloudRows::is_lost(const RemoteError& error, Backoff& backoff) {
  if (error.loses() && !sides_.interrupted && !std::exchange(losing_, true)) ++counts_.losses;
  AfterLoss next = after(error);
  if (next == AfterLoss::kRescue) {
    std::shared_ptr<TailSide> whole;
    co_await Rescue{&whole};
    mover->rescued(std::move(whole));
    next = after(error);
  }
  if (next == AfterLoss::kLeave) co_return true;
  sides_.cloud.reachable = error.status != 0 || sides_.interrupted;
  const bool passes = sides_.cloud.heed(error, 0, sides_.blocks()) || error.transient();
  if (sides_.interrupted) throw error;
  const Moment again = flow_.now() + backoff.failed(error, passes, flow_.now());
  const bool leaves = mover != nullptr && may_be_rescued(mover->loss()) && flow_.now() < lost_at();
  co_await Wait{leaves ? std::min(again, lost_at()) : again};
  if (sides_.interrupted) throw error;
  backoff.again(error);
  co_return false;
}

}  // namespace split::edge
