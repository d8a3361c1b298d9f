#include "edge_client/drive/session_cache.h"

#include <algorithm>

namespace split::edge {

std::optional<SessionCache::Taken> SessionCache::take(
    const std::string& owner, const std::function<uint32_t(const CachedSession&)>& rows_of) {
  const std::lock_guard lock(mutex_);
  auto best = turns_.end();
  uint32_t most = kLeastRows - 1;
  for (auto at = turns_.begin(); at != turns_.end(); ++at) {
    const uint32_t rows = at->owner == owner ? rows_of(*at) : 0;
    if (rows <= most) continue;
    most = rows;
    best = at;
  }
  if (best == turns_.end()) return std::nullopt;
  Taken taken{std::move(*best), most};
  turns_.erase(best);
  return taken;
}

std::optional<CachedSession> SessionCache::take_first(const Test& is_meant) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(turns_, is_meant);
  if (at == turns_.end()) return std::nullopt;
  CachedSession taken = std::move(*at);
  turns_.erase(at);
  return taken;
}

void SessionCache::put(CachedSession turn) {
  std::unique_lock lock(mutex_);
  const bool elsewhere = only_ && turn.tail && &turn.tail->batcher() != *only_;
  const bool keeps = !elsewhere && turn.history.size() >= kLeastRows;
  if (!keeps) {
    lock.unlock();
    return give_up(std::move(turn));
  }
  turns_.push_back(std::move(turn));
  const bool full = turns_.size() > kMost;
  lock.unlock();
  if (!full) return;
  if (auto oldest = take_first([](const CachedSession&) { return true; }))
    give_up(std::move(*oldest));
}

bool SessionCache::make_room(const Batcher& tail) {
  std::optional<CachedSession> dropped = take_first([&](const CachedSession& turn) {
    return turn.tail && &turn.tail->batcher() == &tail &&
           turn.tail->pages().length(turn.tail->sequence()) > 0;
  });
  if (!dropped) return false;
  give_up(std::move(*dropped));
  return true;
}

void SessionCache::stay_on(const Batcher* tail) {
  {
    const std::lock_guard lock(mutex_);
    only_ = tail;
  }
  const Test elsewhere = [&](const CachedSession& turn) {
    return turn.tail && &turn.tail->batcher() != tail;
  };
  while (auto dropped = take_first(elsewhere)) give_up(std::move(*dropped));
}

void SessionCache::drop_all() {
  while (auto dropped = take_first([](const CachedSession&) { return true; })) {
    give_up(std::move(*dropped));
  }
}

std::vector<std::string> SessionCache::give_sessions() {
  std::vector<std::string> sessions;
  while (auto dropped = take_first([](const CachedSession&) { return true; })) {
    if (std::exchange(dropped->cloud.open, false)) sessions.push_back(dropped->cloud.session);
    give_up(std::move(*dropped));
  }
  return sessions;
}

size_t SessionCache::size() const {
  const std::lock_guard lock(mutex_);
  return turns_.size();
}

// Call without the lock: the tail's owner may end with it.
void SessionCache::give_up(CachedSession turn) {
  if (turn.cloud.open && turn.cloud.reachable) goodbye_(turn.cloud.session);
  turn.tail.reset();  // before its owner
}

}  // namespace split::edge
