// The rows of ended texts (split/cached_session.h), kept for later texts of this program, on any
// thread. A text gets rows of its own owner alone. Dropped rows are released on both sides: the
// sequence here at once, and the session on the cloud.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/cached_session.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread.
class SessionCache {
 public:
  static constexpr size_t kMost = 4;
  static constexpr uint32_t kLeastRows = 16;  // fewer are not kept

  // `goodbye` ends a session on the server later; it must not throw or block.
  explicit SessionCache(std::function<void(const std::string& session)> goodbye)
      : goodbye_(std::move(goodbye)) {}
  ~SessionCache() { drop_all(); }
  SessionCache(const SessionCache&) = delete;
  SessionCache& operator=(const SessionCache&) = delete;

  // A turn, and the number of its leading rows that a text goes on from.
  struct Taken {
    CachedSession turn;
    uint32_t rows = 0;
  };
  // Takes out the owner's turn that spares a text the most rows, as counted by `rows_of`; nullopt
  // if none does.
  std::optional<Taken> take(const std::string& owner,
                            const std::function<uint32_t(const CachedSession&)>& rows_of);
  // Keeps a turn; drops the least recently used one above kMost.
  void put(CachedSession turn);
  // Frees pages of the tail; false if it holds none (Batcher::on_pages_spent).
  bool make_room(const Batcher& tail);
  // Drops all turns on other tails, and keeps none on them from now on.
  void stay_on(const Batcher* tail);
  void drop_all();
  // Drops everything; the caller ends the returned sessions.
  std::vector<std::string> give_sessions();
  size_t size() const;

 private:
  using Test = std::function<bool(const CachedSession&)>;
  std::optional<CachedSession> take_first(const Test& is_meant);
  void give_up(CachedSession turn);

  const std::function<void(const std::string&)> goodbye_;
  mutable Mutex mutex_{LockOrder::kTurns};  // guards the members below
  std::deque<CachedSession> turns_;         // the most recent at the end
  std::optional<const Batcher*> only_;      // nullopt: any tail
};

// The cache of turns that a text may go on from, and what its own turn is kept with.
struct SessionCacheUse {
  SessionCache& kept;
  std::string owner;
  bool phases_alike = false;         // the cloud's bits are the same in both phases
  std::shared_ptr<void> keeps = {};  // owner of the tail's batcher
};

}  // namespace split::edge
