// The rows of texts that have ended (split/kept_turns.h), kept for all texts of this program, which
// run on many threads. Rows are their owner's: of nobody else's text. Those that are kept no more
// are given up on both sides: their sequences here, at once, and their sessions on the cloud.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/kept_turns.h"

namespace split::edge {

// Any thread.
class OwnTurns {
 public:
  static constexpr size_t kMost = 4;
  static constexpr uint32_t kLeastRows = 16;  // that are worth it

  // `goodbye` ends a session on the server, in its own time; it must not throw or block.
  explicit OwnTurns(std::function<void(const std::string& session)> goodbye)
      : goodbye_(std::move(goodbye)) {}
  ~OwnTurns() { drop_all(); }
  OwnTurns(const OwnTurns&) = delete;
  OwnTurns& operator=(const OwnTurns&) = delete;

  // A turn, and how many of its leading rows a text goes on from.
  struct Taken {
    KeptTurn turn;
    uint32_t rows = 0;
  };
  // The owner's turn whose rows spare a text most, if any do: so many as `rows_of` says. It is kept
  // no more.
  std::optional<Taken> take(const std::string& owner,
                            const std::function<uint32_t(const KeptTurn&)>& rows_of);
  // The one used least lately gives way.
  void put(KeptTurn turn);
  // Frees pages of the tail; false where there are none to free (Batcher::on_pages_spent).
  bool make_room(const Batcher& tail);
  // Keeps nothing on another tail than this one from now on.
  void stay_on(const Batcher* tail);
  void drop_all();
  // Drops all, but that whoever asks ends the sessions, which are returned.
  std::vector<std::string> give_sessions();
  size_t size() const;

 private:
  using Test = std::function<bool(const KeptTurn&)>;
  std::optional<KeptTurn> take_first(const Test& is_meant);
  void give_up(KeptTurn turn);

  const std::function<void(const std::string&)> goodbye_;
  mutable std::mutex mutex_;            // of all below
  std::deque<KeptTurn> turns_;          // the last one at the end
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
