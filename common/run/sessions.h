// The sequences that clients hold between requests: a session is a range of points of one model and
// its KV. Steps of one session run one at a time, in order of arrival. Idle sessions give way,
// least recently used first, when pages run out; their clients replay. Knows no HTTP.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "run/batcher.h"
#include "run/sequence.h"

namespace split {

// A session's name belongs to its owner: what one owner names means nothing to another.
struct SessionName {
  SessionName(std::string id, std::string owner = {})
      : owner(std::move(owner)), id(std::move(id)) {}
  std::string owner, id;  // in this order: those of one owner are together
  auto operator<=>(const SessionName&) const = default;
};

// The cost of a session so far.
struct SessionReceipt {
  uint64_t steps = 0;
  uint64_t layer_rows = 0;  // rows times layers computed (Shard::layer_rows)
  double queue_ms = 0, compute_ms = 0;
  double share_ms = 0;                   // of the steps' time, by its part of their layer-rows
  uint64_t bytes_in = 0, bytes_out = 0;  // bodies
};

struct Session {
  SessionName name;
  std::string model;
  StageRange range;
  Batcher* batcher = nullptr;
  SequenceId sequence = 0;
  SequenceHistory history;  // its rows, and perhaps more that were there; none of hidden states
  std::optional<int> can;   // the lowest cut that its edge could go on from, where it said so
  SessionReceipt receipt;

  explicit Session(SessionName name) : name(std::move(name)) {}

 private:
  friend class Sessions;
  uint64_t next_ticket_ = 0, serving_ = 0;  // first come, first served
  std::chrono::steady_clock::time_point used_;
};

// Any number of threads.
class Sessions {
 public:
  enum class Put { kCreated, kExists, kConflict, kOwnerFull };

  // At most `limit` sessions; a new one beyond it takes the place of the least recently used idle
  // one. An owner's own limit is harder, so that its clients take turns and do not chase each other
  // out: there only one that was idle for `abandoned` gives way.
  explicit Sessions(size_t limit, std::chrono::milliseconds abandoned = std::chrono::seconds(30))
      : limit_(limit), abandoned_(abandoned) {}
  ~Sessions();

  // `most`: sessions of this owner; 0: no limit. Throws Error(kBusy) when all `limit` sessions are
  // in use.
  Put put(const SessionName& name, const std::string& model, const StageRange& range,
          Batcher& batcher, size_t most = 0);
  // False when there is none. Waits for its steps to end.
  bool remove(const SessionName& name);
  // Frees the pages of the least recently used idle session of `batcher`; false when there is none.
  bool evict_one(const Batcher& batcher);

  // Calls `use` with the session, alone with it; false when there is none.
  bool with(const SessionName& name, const std::function<void(Session&)>& use);

  size_t size() const;
  size_t size_of(const Batcher& batcher) const;
  uint64_t evicted() const { return evicted_; }

 private:
  using Map = std::map<SessionName, std::shared_ptr<Session>>;
  using May = std::function<bool(const Session&)>;
  // With the lock held:
  void erase(Map::iterator at);
  bool evict_idle(const May& may);
  size_t count_of(const std::string& owner) const;

  const size_t limit_;
  const std::chrono::milliseconds abandoned_;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  Map sessions_;
  uint64_t evicted_ = 0;
};

}  // namespace split
