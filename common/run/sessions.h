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

namespace split {

struct SessionRange {
  std::string model;
  int from = 0, to = 0;
  bool operator==(const SessionRange&) const = default;
};

struct Session {
  std::string id;
  SessionRange range;
  Batcher* batcher = nullptr;
  SequenceId sequence = 0;
  uint64_t layer_rows = 0;  // rows times layers computed so far

 private:
  friend class Sessions;
  uint64_t next_ticket = 0, serving = 0;  // first come, first served
  std::chrono::steady_clock::time_point used;
};

// Any number of threads.
class Sessions {
 public:
  enum class Put { kCreated, kExists, kConflict };

  // At most `limit` sessions; a new one beyond it takes the place of the least recently used idle
  // one.
  explicit Sessions(size_t limit) : limit_(limit) {}
  ~Sessions();

  // Throws Error(kBusy) when all `limit` sessions are in use.
  Put put(const std::string& id, const SessionRange& range, Batcher& batcher);
  // False when there is none. Waits for its steps to end.
  bool remove(const std::string& id);
  // Frees the pages of the least recently used idle session of `batcher`; false when there is none.
  bool evict_one(const Batcher& batcher);

  // Calls `use` with the session, alone with it; false when there is none.
  bool with(const std::string& id, const std::function<void(Session&)>& use);

  size_t size() const;
  uint64_t evicted() const { return evicted_; }

 private:
  void erase(std::map<std::string, std::shared_ptr<Session>>::iterator at);  // with the lock held
  bool evict_idle(const Batcher* batcher);                                   // with the lock held

  const size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
  uint64_t evicted_ = 0;
};

}  // namespace split
