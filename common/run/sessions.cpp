#include "run/sessions.h"

#include <algorithm>

namespace split {

Sessions::~Sessions() {
  for (auto& [id, session] : sessions_) session->batcher->shard().pages().close(session->sequence);
}

size_t Sessions::count_of(const std::string& owner) const {
  auto at = sessions_.lower_bound(SessionName("", owner));
  size_t count = 0;
  for (; at != sessions_.end() && at->first.owner == owner; ++at) ++count;
  return count;
}

Sessions::Put Sessions::put(const SessionName& name, const std::string& model,
                            const StageRange& range, Batcher& batcher, size_t most) {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(name);
  if (at != sessions_.end()) {
    const bool same = at->second->model == model && at->second->range == range;
    return same ? Put::kExists : Put::kConflict;
  }
  const auto now = std::chrono::steady_clock::now();
  if (most != 0 && count_of(name.owner) >= most && !evict_idle([&](const Session& session) {
        return session.name.owner == name.owner && now - session.used_ >= abandoned_;
      })) {
    return Put::kOwnerFull;
  }
  if (sessions_.size() >= limit_ && !evict_idle([](const Session&) { return true; })) {
    throw Error(ErrorKind::kBusy, cat("all ", limit_, " sessions are in use, try again later"));
  }
  auto session = std::make_shared<Session>(name);
  session->model = model;
  session->range = range;
  session->batcher = &batcher;
  session->used_ = now;
  const auto placed = sessions_.emplace(name, session).first;
  try {
    session->sequence = batcher.shard().pages().open();
  } catch (...) {  // out of memory
    sessions_.erase(placed);
    throw;
  }
  return Put::kCreated;
}

void Sessions::erase(Map::iterator at) {
  at->second->batcher->shard().pages().close(at->second->sequence);
  sessions_.erase(at);
}

bool Sessions::evict_idle(const May& may) {
  auto oldest = sessions_.end();
  for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
    const Session& session = *at->second;
    if (session.next_ticket_ != session.serving_) continue;  // in use or waited for
    if (!may(session)) continue;
    if (oldest == sessions_.end() || session.used_ < oldest->second->used_) oldest = at;
  }
  if (oldest == sessions_.end()) return false;
  erase(oldest);
  ++evicted_;
  return true;
}

bool Sessions::evict_one(const Batcher& batcher) {
  const std::lock_guard lock(mutex_);
  return evict_idle([&](const Session& session) {
    return session.batcher == &batcher && batcher.pages().length(session.sequence) > 0;
  });
}

bool Sessions::with(const SessionName& name, const std::function<void(Session&)>& use) {
  std::unique_lock lock(mutex_);
  const auto at = sessions_.find(name);
  if (at == sessions_.end()) return false;
  const std::shared_ptr<Session> session = at->second;
  const uint64_t ticket = session->next_ticket_++;
  turn_.wait(lock, [&] { return session->serving_ == ticket; });
  // A session that another step's client removed while this one waited is still here: remove()
  // takes a ticket too.
  const auto still = sessions_.find(name);
  const bool there = still != sessions_.end() && still->second == session;
  lock.unlock();
  std::exception_ptr error;
  if (there) {
    try {
      use(*session);
    } catch (...) {
      error = std::current_exception();
    }
  }
  lock.lock();
  session->used_ = std::chrono::steady_clock::now();
  ++session->serving_;
  turn_.notify_all();
  if (error != nullptr) std::rethrow_exception(error);
  return there;
}

bool Sessions::remove(const SessionName& name) {
  return with(name, [&](Session& session) {
    const std::lock_guard lock(mutex_);
    const auto at = sessions_.find(name);
    if (at != sessions_.end() && at->second.get() == &session) erase(at);
  });
}

size_t Sessions::size_of(const Batcher& batcher) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      sessions_, [&](const auto& session) { return session.second->batcher == &batcher; }));
}

size_t Sessions::size() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace split
