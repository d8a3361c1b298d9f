#include "run/sessions.h"

namespace split {

Sessions::~Sessions() {
  for (auto& [id, session] : sessions_) session->batcher->shard().pages().close(session->sequence);
}

Sessions::Put Sessions::put(const std::string& id, const SessionRange& range, Batcher& batcher) {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(id);
  if (at != sessions_.end()) return at->second->range == range ? Put::kExists : Put::kConflict;
  if (sessions_.size() >= limit_ && !evict_idle(nullptr)) {
    throw Error(ErrorKind::kBusy, cat("all ", limit_, " sessions are in use, try again later"));
  }
  auto session = std::make_shared<Session>();
  session->id = id;
  session->range = range;
  session->batcher = &batcher;
  session->sequence = batcher.shard().pages().open();
  session->used = std::chrono::steady_clock::now();
  sessions_.emplace(id, std::move(session));
  return Put::kCreated;
}

void Sessions::erase(std::map<std::string, std::shared_ptr<Session>>::iterator at) {
  at->second->batcher->shard().pages().close(at->second->sequence);
  sessions_.erase(at);
}

bool Sessions::evict_idle(const Batcher* batcher) {
  auto oldest = sessions_.end();
  for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
    const Session& session = *at->second;
    if (session.next_ticket != session.serving) continue;  // in use or waited for
    if (batcher != nullptr &&
        (session.batcher != batcher || batcher->pages().length(session.sequence) == 0)) {
      continue;
    }
    if (oldest == sessions_.end() || session.used < oldest->second->used) oldest = at;
  }
  if (oldest == sessions_.end()) return false;
  erase(oldest);
  ++evicted_;
  return true;
}

bool Sessions::evict_one(const Batcher& batcher) {
  const std::lock_guard lock(mutex_);
  return evict_idle(&batcher);
}

bool Sessions::with(const std::string& id, const std::function<void(Session&)>& use) {
  std::unique_lock lock(mutex_);
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return false;
  const std::shared_ptr<Session> session = at->second;
  const uint64_t ticket = session->next_ticket++;
  turn_.wait(lock, [&] { return session->serving == ticket; });
  // A session that another step's client removed while this one waited is still here: remove()
  // takes a ticket too.
  const auto still = sessions_.find(id);
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
  session->used = std::chrono::steady_clock::now();
  ++session->serving;
  turn_.notify_all();
  if (error != nullptr) std::rethrow_exception(error);
  return there;
}

bool Sessions::remove(const std::string& id) {
  return with(id, [&](Session& session) {
    const std::lock_guard lock(mutex_);
    const auto at = sessions_.find(id);
    if (at != sessions_.end() && at->second.get() == &session) erase(at);
  });
}

size_t Sessions::size() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace split
