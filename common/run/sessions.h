// The sequences that clients hold between requests: a session is a range of points of one model and
// its KV cache. Steps of one session run one at a time, in order of arrival. Idle sessions are
// evicted, least recently used first, when pages run out; their clients replay. Knows no HTTP.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "run/batcher.h"
#include "run/sequence.h"

namespace split {

// A session's name belongs to its owner: another owner's equal name is another session.
struct SessionName {
  SessionName(std::string id, std::string owner = {})
      : owner(std::move(owner)), id(std::move(id)) {}
  std::string owner, id;  // in this order: an owner's sessions are adjacent
  auto operator<=>(const SessionName&) const = default;
};

// The cost of a session so far.
struct SessionReceipt {
  uint64_t steps = 0;
  uint64_t layer_rows = 0;  // rows times layers computed (Shard::layer_rows)
  double queue_ms = 0, compute_ms = 0;
  double share_ms = 0;                   // the steps' time in proportion to its layer-rows
  uint64_t bytes_in = 0, bytes_out = 0;  // bodies
};

struct Session {
  SessionName name;
  std::string model;
  StageRange range;
  Batcher* batcher = nullptr;
  SequenceId sequence = 0;
  SequenceHistory history;         // its rows, and perhaps lost ones; hidden states leave none
  std::optional<PrefixRoot> root;  // where it takes and leaves cached rows; none: nowhere
  uint32_t kept = 0;               // rows when it last left some there
  bool lacks_snapshot = false;     // its prompt's end, which may be still to come, has none
  std::optional<int> can;          // the lowest cut that its edge could go on from, if it said so
  bool moved = false;              // its edge sent rows that another session had
  SessionReceipt receipt;

  explicit Session(SessionName name) : name(std::move(name)) {}

 private:
  friend class Sessions;
  // Sessions without a user or a waiter, least recently used first.
  using Order = std::list<Session*>;
  // Its node in an order, or beside it: entering and leaving allocate nothing, in constant time.
  struct Place {
    explicit Place(Session* session) : beside(1, session), node(beside.begin()) {}
    void enter(Order& other) {
      other.splice(other.end(), beside, node);
      order = &other;
    }
    void leave() {
      if (order != nullptr) beside.splice(beside.end(), *std::exchange(order, nullptr), node);
    }
    Order beside;
    Order* order = nullptr;
    Order::iterator node;
  };
  uint64_t next_ticket_ = 0, serving_ = 0;  // first come, first served
  std::chrono::steady_clock::time_point used_;
  Place of_all_{this}, of_owner_{this}, of_batcher_{this};
};

// Any number of threads.
class Sessions {
 public:
  enum class Put { kCreated, kExists, kConflict, kOwnerFull };

  // At most `limit` sessions; a new one beyond it replaces the least recently used idle one. An
  // owner's own limit is harder, so that its clients take turns and do not chase each other out:
  // there only one that was idle for `abandoned` is evicted.
  explicit Sessions(size_t limit, std::chrono::milliseconds abandoned = std::chrono::seconds(30))
      : limit_(limit), abandoned_(abandoned) {}
  ~Sessions();

  // `most`: sessions of this owner; 0: no limit. `root`: a new session's. Throws Error(kBusy) when
  // all `limit` sessions are in use.
  Put put(const SessionName& name, const std::string& model, const StageRange& range,
          Batcher& batcher, size_t most = 0, std::optional<PrefixRoot> root = {});
  // Waits for its steps to end. Returns false if there is no such session.
  bool remove(const SessionName& name);
  // Frees the pages of the least recently used idle session of `batcher`; false if there is none.
  bool evict_one(const Batcher& batcher);

  // Calls `use` with the session, alone with it; false if there is none.
  bool with(const SessionName& name, const std::function<void(Session&)>& use);

  bool has(const SessionName& name) const;
  size_t size() const;
  size_t size_of(const Batcher& batcher) const;
  uint64_t evicted() const { return evicted_; }
  // Sessions looked at to make room: one for each eviction, however many there are, and one for
  // each that had lost its rows otherwise.
  uint64_t looked() const { return looked_; }

 private:
  using Map = std::map<SessionName, std::shared_ptr<Session>>;
  // The sessions of one owner or batcher; for a batcher, only sessions with rows are in `idle`.
  struct Group {
    size_t sessions = 0;
    Session::Order idle;
  };
  // Called with the lock held:
  void enter(Session& session);
  static void leave(Session& session);
  void erase(Map::iterator at);
  bool evict_first(const Session::Order& order);

  const size_t limit_;
  const std::chrono::milliseconds abandoned_;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  std::map<std::string, Group, std::less<>> owners_;
  std::map<const Batcher*, Group> batchers_;
  Session::Order idle_;
  Map sessions_;  // destroyed before the orders that its sessions are in
  uint64_t evicted_ = 0, looked_ = 0;
};

}  // namespace split
