// The kept turns (split/kept_turns.h) of all texts of this program, which run on many threads.
// Those that are kept no more are given up on both sides: their sequences here, at once, and their
// sessions on the cloud.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "edge_client/split/kept_turns.h"

namespace split::edge {

// Any thread.
class OwnTurns {
 public:
  // `goodbye` ends a session on the server, in its own time; it must not throw or block.
  explicit OwnTurns(std::function<void(const std::string& session)> goodbye)
      : goodbye_(std::move(goodbye)) {}
  ~OwnTurns() { drop_all(); }
  OwnTurns(const OwnTurns&) = delete;
  OwnTurns& operator=(const OwnTurns&) = delete;

  std::optional<TurnTaken> take(const TurnWanted& wanted);
  void put(KeptTurn turn);
  // Frees pages of the tail; false where there are none to free (Batcher::on_pages_spent).
  bool make_room(const Batcher& tail);
  // Keeps nothing on another tail than this one from now on.
  void stay_on(const Batcher* tail);
  void drop_all();
  // The same, but that whoever asks ends the sessions, which are returned.
  std::vector<std::string> give_sessions();
  size_t size() const;

 private:
  std::optional<KeptTurn> drop_one(const Batcher* tail);
  void give_up(KeptTurn turn);

  const std::function<void(const std::string&)> goodbye_;
  mutable std::mutex mutex_;  // of:
  KeptTurns turns_;
  std::optional<const Batcher*> only_;  // tail; none: any
};

// Names the turns that a text may go on from, and what its own are kept with.
struct TurnsOf {
  OwnTurns& kept;
  std::string owner;
  bool phases_alike = false;         // on the cloud
  std::shared_ptr<void> keeps = {};  // what the tail is a part of
};

}  // namespace split::edge
