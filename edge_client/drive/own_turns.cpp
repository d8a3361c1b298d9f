#include "edge_client/drive/own_turns.h"

namespace split::edge {

std::optional<TurnTaken> OwnTurns::take(const TurnWanted& wanted) {
  const std::lock_guard lock(mutex_);
  return turns_.take(wanted);
}

void OwnTurns::put(KeptTurn turn) {
  std::optional<KeptTurn> dropped;
  {
    const std::lock_guard lock(mutex_);
    const bool elsewhere = only_ && turn.tail && &turn.tail->batcher() != *only_;
    dropped = elsewhere ? std::move(turn) : turns_.put(std::move(turn));
  }
  if (dropped) give_up(std::move(*dropped));
}

std::optional<KeptTurn> OwnTurns::drop_one(const Batcher* tail) {
  const std::lock_guard lock(mutex_);
  return turns_.drop_one(tail);
}

bool OwnTurns::make_room(const Batcher& tail) {
  std::optional<KeptTurn> dropped = drop_one(&tail);
  if (!dropped) return false;
  give_up(std::move(*dropped));
  return true;
}

void OwnTurns::stay_on(const Batcher* tail) {
  std::vector<KeptTurn> dropped;
  {
    const std::lock_guard lock(mutex_);
    only_ = tail;
    dropped = turns_.drop_others(tail);
  }
  for (KeptTurn& turn : dropped) give_up(std::move(turn));
}

void OwnTurns::drop_all() {
  while (std::optional<KeptTurn> dropped = drop_one(nullptr)) give_up(std::move(*dropped));
}

std::vector<std::string> OwnTurns::give_sessions() {
  std::vector<std::string> sessions;
  while (std::optional<KeptTurn> dropped = drop_one(nullptr)) {
    if (std::exchange(dropped->cloud.open, false)) sessions.push_back(dropped->cloud.session);
    give_up(std::move(*dropped));
  }
  return sessions;
}

size_t OwnTurns::size() const {
  const std::lock_guard lock(mutex_);
  return turns_.size();
}

// Without the lock: what the tail is a part of may end with it.
void OwnTurns::give_up(KeptTurn turn) {
  if (turn.cloud.open && turn.cloud.reachable) goodbye_(turn.cloud.session);
  turn.tail.reset();  // before what it is a part of
}

}  // namespace split::edge
