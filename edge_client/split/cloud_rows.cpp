#include "edge_client/split/cloud_rows.h"

#include <algorithm>

#include "wire/codes.h"

namespace split::edge {

Task<std::vector<float>> CloudRows::ask(SequenceRows rows, bool every) {
  rows.range = {.to = sides_.cut};
  rows.wanted = every ? Wanted::kAll : Wanted::kLast;
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
        SequenceRows next = rows;
        if (const uint32_t there = cloud.rows.below(sides_.cut); there < rows.past) {
          begins_again_ |= !std::exchange(again, true);
          next = sides_.history.piece(there, rows.past);
          next.range = rows.range;
          next.wanted = Wanted::kLast;
        }
        const Send asked{Send::kStep, cloud.session, next, &counts_.traffic, can()};
        std::vector<float> hidden = co_await asked;
        heed_load();
        answered();
        cloud.rows.step(next.past, next.past + next.count(), sides_.cut);
        ++counts_.trips;
        counts_.cloud_layer_rows += uint64_t{next.count()} * static_cast<uint64_t>(sides_.cut);
        if (next.past == rows.past) co_return hidden;
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
  if (lane != nullptr) lane->cloud_answered();
}

void CloudRows::goes_on() {
  counts_.survived += std::exchange(losing_, false) ? 1 : 0;
  counts_.replays += std::exchange(begins_again_, false) ? 1 : 0;
}

void CloudRows::heed_load() {
  const auto& load = flow_.load();
  if (!load) return;
  most_guesses_ = static_cast<uint32_t>(load->draft);
  if (lane != nullptr) lane->wish(load->want);
}

// The time from which on the cloud is lost, if it does not answer.
Moment CloudRows::lost_at() const {
  constexpr std::chrono::milliseconds kPatience{1500};
  return asked_ + std::min(kPatience, retry_.budget);
}

Task<bool> CloudRows::is_lost(const RemoteError& error, Backoff& backoff) {
  if (error.loses() && !sides_.interrupted && !std::exchange(losing_, true)) ++counts_.losses;
  const bool gone = error.status == 0 || error.code == wire::codes::kModelMismatch;
  if (gone && !sides_.interrupted && lane != nullptr) {
    const bool lost = error.status == 0 && flow_.now() >= lost_at();
    if (lost && lane->may_be_rescued() && !lane->can_leave_cloud()) {
      std::shared_ptr<TailSide> whole;
      co_await Rescue{&whole};
      lane->rescued(std::move(whole));
    }
    if (lane->can_leave_cloud()) co_return true;
  }
  sides_.cloud.reachable = error.status != 0 || sides_.interrupted;
  const bool passes = sides_.cloud.heed(error, 0, sides_.cut) || error.transient();
  if (sides_.interrupted) throw error;
  const Moment again = flow_.now() + backoff.failed(error, passes, flow_.now());
  const bool leaves = lane != nullptr && lane->may_be_rescued() && flow_.now() < lost_at();
  co_await Wait{leaves ? std::min(again, lost_at()) : again};
  if (sides_.interrupted) throw error;
  backoff.again(error);
  co_return false;
}

}  // namespace split::edge
